package nrt

import (
	"context"
	"errors"
	"github.com/numalet/numalet/agent/placement/allocation"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/internal/await"
)

// rig is a writer and an API server that keeps one object, in virtual time.
type rig struct {
	*Writer
	t              *testing.T
	changed, again chan struct{}

	mu      sync.Mutex // guards the fields below
	facts   Facts
	node    *v1.Node
	refuse  error // the result of every request
	has     string
	tries   int
	written time.Time
}

// run runs a writer in a synctest bubble until the test has ended.
func run(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	facts := known(t)
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, changed: make(chan struct{}, 1), again: make(chan struct{}, 1),
			facts: facts, node: owner}
		r.Writer = New(Config{
			Apply: r.apply, Changed: r.changed, Again: r.again, Period: 5 * time.Minute,
			Node:  func() *v1.Node { r.mu.Lock(); defer r.mu.Unlock(); return r.node },
			Facts: func() Facts { r.mu.Lock(); defer r.mu.Unlock(); return r.facts },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		test(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) apply(_ context.Context, name string, object []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.refuse == nil {
		r.has, r.written = name+" "+string(object), time.Now()
	}
	return r.refuse
}

// do changes the world, and signals it.
func (r *rig) do(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	await.Wake(r.changed)
}

// take makes other pods hold n CPUs.
func (r *rig) take(n int) {
	r.do(func() {
		r.facts.Held = r.facts.Held.With(allocation.CPUs(cpuset.New(r.facts.CPUs.List()[:n]...)))
	})
}

// made returns the number of requests since its last call.
func (r *rig) made() int {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.tries
	r.tries = 0
	return n
}

func (r *rig) expect(n int, when string) {
	r.t.Helper()
	if got := r.made(); got != n {
		r.t.Errorf("%s: %d requests, want %d", when, got, n)
	}
}

// TestWritten: the object is written at once, within 200 ms of a change, again after the period,
// and after the API server was restored from a backup. Irrelevant changes are not written.
func TestWritten(t *testing.T) {
	run(t, func(_ *testing.T, r *rig) {
		time.Sleep(200 * time.Millisecond)
		r.expect(1, "at the start")
		r.take(5)
		time.Sleep(200 * time.Millisecond)
		r.expect(1, "after a change")
		r.take(5)
		time.Sleep(time.Minute)
		r.expect(0, "after none")
		time.Sleep(5 * time.Minute)
		r.expect(1, "after the period")
		await.Wake(r.again)
		time.Sleep(time.Second)
		r.expect(1, "after the API server was restored")
	})
}

// TestChurn: changes ten times a second are written about once a second, and the last state always.
func TestChurn(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		for i := range 600 {
			r.take(i % 60)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if n := r.made(); n < 60 || n > 75 {
			t.Errorf("%d requests in a minute", n)
		}
		if want := "n " + string(r.object(owner)); r.has != want {
			t.Errorf("at last it is\n%s\nwant\n%s", r.has, want)
		}
	})
}

// TestRefused: a cluster without the kind, or without the right, is asked less and less often,
// whatever changes, and has the object soon after that is possible.
func TestRefused(t *testing.T) {
	of := schema.GroupResource{Group: "topology.node.k8s.io", Resource: "noderesourcetopologies"}
	for _, tc := range []struct {
		err  error
		says string
	}{
		{apierrors.NewGenericServerResponse(404, "PATCH", of, "n", "", 0, true),
			"the cluster has no kind NodeResourceTopology"},
		{apierrors.NewForbidden(of, "n", errors.New("no")), "give the group system:nodes the verbs"},
		{errors.New("connection refused"), "connection refused"},
	} {
		run(t, func(t *testing.T, r *rig) {
			r.do(func() { r.refuse = tc.err })
			for i := range 36000 { // an hour
				r.take(i % 60)
				time.Sleep(100 * time.Millisecond)
			}
			if n := r.made(); n < 15 || n > 20 {
				t.Errorf("%v: %d requests in an hour", tc.err, n)
			}
			if !strings.Contains(explained(tc.err), tc.says) {
				t.Errorf("it is explained as %q", explained(tc.err))
			}
			r.do(func() { r.refuse = nil })
			time.Sleep(5 * time.Minute)
			r.made()
			r.take(7)
			time.Sleep(200 * time.Millisecond)
			r.expect(1, "after a change")
		})
	}
}

// TestNode: without a Node there is no object; after the Node was replaced, the new one owns it.
func TestNode(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		time.Sleep(time.Second)
		r.made()
		r.do(func() { r.node = nil })
		r.take(3)
		time.Sleep(time.Hour)
		r.expect(0, "without a Node")
		r.do(func() {
			r.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID("other")}}
		})
		time.Sleep(200 * time.Millisecond)
		r.expect(1, "with another Node")
		if !strings.Contains(r.has, `"uid":"other"`) {
			t.Errorf("it belongs to another: %s", r.has)
		}
	})
}
