package admission

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
)

// A question is answered while plugins hang, and waits no longer than its asker.
func TestSnapshotWaitsForNobody(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, nil)
		d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
		s, err := d.queue.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// What the pod before it is about to get is not to be had.
		one := s.Decide(pod("b", "cpu=2 example.com/gpu=1"), nil)
		if one.Outcome != Admit ||
			!slices.Equal(one.Held.Containers["main"].Devices[0].IDs, []string{"d1"}) {
			t.Errorf("%+v", one)
		}
		if two := s.With(one).Decide(pod("c", "example.com/gpu=1"), nil); two.Outcome != Reject {
			t.Errorf("a third pod gets %+v", two.Held)
		}
		if again := s.Decide(pod("c", "example.com/gpu=1"), nil); again.Outcome != Admit {
			t.Errorf("the first snapshot has changed: %+v", again.Outcome)
		}
		d.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.queue.Snapshot(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a queue that has stopped answers %v", err)
		}
	})
}

// A node at rest counts what its state file has.
func TestStill(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		var cfg Config
		d := open(t, dir, p, func(c *Config) { cfg = *c })
		defer d.stop()
		cfg.Plugins = p
		cfg.Store = allocation.Fixed(allocation.State{Pods: map[types.UID]allocation.Pod{
			"old": {UID: "old", Containers: map[string]allocation.Container{
				"main": {CPUs: cpuset.New(1, 2, 3, 4)},
			}},
		}})
		s := Still(cfg)
		if got := s.Decide(pod("a", "cpu=3"), nil); got.Outcome != Admit ||
			!got.Held.Containers["main"].CPUs.Equals(cpuset.New(5, 6, 7)) {
			t.Errorf("three CPUs: %+v %+v", got.Outcome, got.Held)
		}
		if got := s.Decide(pod("a", "cpu=3500m"), nil); got.Reason != "OutOfcpu" {
			t.Errorf("more than is left: %+v", got.Outcome)
		}
		if err := cfg.Store.Commit(t.Context(), allocation.Change{Drop: "old"}); err == nil {
			t.Error("a fixed store took a commit")
		}
	})
}
