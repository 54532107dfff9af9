package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/harness"
)

// TestEvictedMeanwhile: pods that controllers delete while the node reaches nobody run on until it
// hears of that, and then end as any other; those that tolerate it are ready again and were never
// started anew. The lease goes on.
func TestEvictedMeanwhile(t *testing.T) {
	t.Run("by a taint", func(t *testing.T) {
		testEviction(t, func(s *faulty) {
			s.c.MustRun("taint", "node", s.node.Name, "example.com/out=:NoExecute")
		}, func(s *faulty) {
			s.c.MustRun("taint", "node", s.node.Name, "example.com/out:NoExecute-")
		})
	})
	t.Run("by silence", func(t *testing.T) {
		if os.Getenv("NUMALET_FAULT_ROUNDS") == "" {
			t.Skip("left out: takes more than a minute; NUMALET_FAULT_ROUNDS has it run")
		}
		harness.Patience *= 3 // the controller manager's patience is nearly one of ours
		defer func() { harness.Patience /= 3 }()
		testEviction(t, func(s *faulty) {
			await(t, s.c, s.c.Namespace, "stays", func(p *v1.Pod) bool { return !runs(p) })
		}, func(*faulty) {})
	})
}

// testEviction has the node silent, something done to it meanwhile, and undone.
func testEviction(t *testing.T, do, undo func(*faulty)) {
	s := newFaulty(t, 0, harness.New(t), nil, "")
	stays := bound(s.node.Name, "stays", "")
	s.c.Apply(stays)
	s.c.Apply(strings.NewReplacer(`"stays"`, `"goes"`, "name: stays", "name: goes",
		"[{operator: Exists}]", "[{key: node.kubernetes.io/unreachable, operator: Exists, "+
			"effect: NoExecute, tolerationSeconds: 0}]").Replace(stays))
	before := await(t, s.c, s.c.Namespace, "stays", runs)
	await(t, s.c, s.c.Namespace, "goes", runs)

	s.proxy.Set(faults.Trouble{Share: 1, Hang: true})
	s.proxy.Cut()
	do(s)
	await(t, s.c, s.c.Namespace, "goes", func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
	if c, ok := s.node.Runtime.State().Container("goes", "main"); !ok || !c.Running() {
		t.Errorf("before the node has heard of it the container is %+v", c)
	}
	heard := time.Now()
	s.proxy.Set(faults.Trouble{})
	harness.Eventually(t, "the evicted pod is gone", func() error {
		_, err := get(t, s.c, s.c.Namespace, "goes")
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, or %w", err)
		}
		return nil
	})
	if c, there := s.node.Runtime.State().Container("goes", "main"); there {
		t.Errorf("the runtime still has %s of it, %s", c.ID, c.State)
	}
	after := await(t, s.c, s.c.Namespace, "stays", runs)
	a, b := identity(before.Status.ContainerStatuses[0]), identity(after.Status.ContainerStatuses[0])
	if a != b {
		t.Errorf("the container that stays was %q, and is %q", a, b)
	}
	undo(s)
	harness.Eventually(t, "the node is as before", func() error { return s.alive(heard) })
	s.c.MustRun("delete", "pod", "stays", "--timeout=1m")
}
