package admission

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// A plugin that hangs holds up its own pods; they keep their claim and are admitted when it
// answers.
func TestHangingPluginHoldsUpOnlyItsPods(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var hang atomic.Bool
		hang.Store(true)
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			if !hang.Load() {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=3 example.com/gpu=2"), false)
		d.queue.Submit(pod("b", "cpu=3"), false)
		d.expect("b Admit")
		time.Sleep(2 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: no answer to Allocate yet from the device " +
			"plugin of " +
			"example.com/gpu")
		time.Sleep(9 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: the device plugin of example.com/gpu failed: " +
			"context deadline exceeded")
		if n := d.reworded.Load(); n != 0 { // another cause is news
			t.Errorf("%d outcomes were said in other words only, want none", n)
		}
		d.queue.Submit(pod("c", "cpu=2"), false)
		d.expect("c Reject: UnexpectedAdmissionError: Allocate failed due to not enough cpus " +
			"available to satisfy request: requested=2, available=1, which is unexpected")
		hang.Store(false)
		time.Sleep(20 * time.Second)
		d.expect("a Admit") // that it is called again is no news
	})
}
