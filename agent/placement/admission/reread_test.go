package admission

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
)

// A pod that lacks huge pages is refused only after the machine was looked at again, once.
func TestTheMachineIsLookedAtAgain(t *testing.T) {
	const refused = "a Reject: OutOfhugepages-2Mi: Node didn't have enough resource: " +
		"hugepages-2Mi, requested: 4194304, used: 0, capacity: 0"
	const ms = time.Millisecond
	for _, tt := range []struct {
		name   string
		looks  time.Duration // how long a look takes
		want   string
		waited time.Duration
	}{
		{"pages were added", ms, "a Admit", ms},
		{"the look takes too long", time.Hour, refused, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				var asked atomic.Int64
				var grown atomic.Bool
				d := open(t, dir, &plugins{}, func(cfg *Config) {
					cfg.Wait = 0
					first := cfg.Hardware()
					cfg.Hardware = func() machine.Hardware { return withPages(first, grown.Load()) }
					cfg.Reread = func(ctx context.Context, what decide.Stale) {
						if what != decide.StaleMachine {
							t.Errorf("looked at %v", what)
						}
						asked.Add(1)
						select {
						case <-ctx.Done():
						case <-time.After(tt.looks):
							grown.Store(true)
						}
					}
				})
				defer d.stop()
				d.queue.Submit(pod("a", "hugepages-2Mi=4Mi"), false)
				d.expect()
				d.queue.Poke() // is no reason to decide before
				d.expect()
				time.Sleep(tt.waited - time.Nanosecond)
				d.expect()
				time.Sleep(time.Nanosecond)
				d.expect(tt.want)
				if n := asked.Load(); n != 1 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

// A pod that the node's labels refuse is refused only after the node was looked at again, once: the
// scheduler may have seen them before the node's own watch.
func TestTheNodeIsLookedAtAgain(t *testing.T) {
	const refused = "a Reject: NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's " +
		"node affinity/selector"
	for want, labels := range map[string]map[string]string{
		"a Admit": {"gpu": "h100"}, refused: {"gpu": "none"},
	} {
		bubble(t, func(t *testing.T, dir string) {
			var asked atomic.Int64
			var node atomic.Pointer[v1.Node]
			node.Store(&v1.Node{})
			d := open(t, dir, &plugins{}, func(cfg *Config) {
				cfg.Handlers = []decide.Handler{handlers.Affinity}
				cfg.Node = node.Load
				cfg.Reread = func(_ context.Context, what decide.Stale) {
					if what != decide.StaleNode {
						t.Errorf("looked at %v", what)
					}
					asked.Add(1)
					now := &v1.Node{}
					now.Labels = labels
					node.Store(now)
				}
			})
			defer d.stop()
			p := pod("a", "cpu=1")
			p.Spec.NodeSelector = map[string]string{"gpu": "h100"}
			d.queue.Submit(p, false)
			synctest.Wait()
			if asked.Load() != 1 {
				t.Errorf("looked %d times", asked.Load())
			}
			d.expect(want)
		})
	}
}

func withPages(h machine.Hardware, grown bool) machine.Hardware {
	if grown {
		h.Allocatable = maps.Clone(h.Allocatable)
		h.Allocatable[v1.ResourceHugePagesPrefix+"2Mi"] = resource.MustParse("8Mi")
	}
	return h
}
