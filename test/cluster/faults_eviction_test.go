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

// TestEvictedMeanwhile: pods that controllers delete while the node is cut off run on until the
// node learns of it, and then end like any other; pods that tolerate the taint become ready again
// and are never restarted. The lease goes on.
func TestEvictedMeanwhile(t *testing.T) {
	t.Run("at once", func(t *testing.T) { testEviction(t, func(*faulty) {}) })
	t.Run("after a minute", func(t *testing.T) {
		if os.Getenv(roundsEnv) == "" {
			t.Skip("left out: " + roundsEnv + " has it run")
		}
		testEviction(t, func(s *faulty) { // the node counts as lost: its pods are no longer ready
			await(t, s.c, s.c.Namespace, "stays", func(p *v1.Pod) bool { return !runs(p) })
		})
	})
}

// testEviction silences the node for a while, and then evicts its pods by a taint.
func testEviction(t *testing.T, meanwhile func(*faulty)) {
	s := newFaulty(t, harness.New(t), nil, "")
	stays := bound(s.node.Name, "stays", "")
	s.c.Apply(stays)
	s.c.Apply(strings.NewReplacer(`"stays"`, `"goes"`, "name: stays", "name: goes",
		"[{operator: Exists}]", "[]").Replace(stays))
	before := await(t, s.c, s.c.Namespace, "stays", runs)
	await(t, s.c, s.c.Namespace, "goes", runs)

	s.proxy.Set(faults.Trouble{Share: 1, Hang: true})
	s.proxy.Cut()
	meanwhile(s)
	s.c.MustRun("taint", "node", s.node.Name, "example.com/out=:NoExecute")
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
	if c, _ := s.node.Runtime.State().Container("goes", "main"); c.Running() {
		t.Error("its container runs")
	}
	s.node.AwaitGone("goes")
	after := await(t, s.c, s.c.Namespace, "stays", runs)
	a, b := identity(before.Status.ContainerStatuses[0]), identity(after.Status.ContainerStatuses[0])
	if a != b {
		t.Errorf("the container that stays was %q, and is %q", a, b)
	}
	s.c.MustRun("taint", "node", s.node.Name, "example.com/out:NoExecute-")
	harness.Eventually(t, "the node is as before", func() error { return s.alive(heard) })
	s.c.MustRun("delete", "pod", "stays", "--timeout=1m")
}
