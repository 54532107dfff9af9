package admission

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/record"
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

func TestPluginThatSaysNoRejectsAndNothingIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(context.Context, string, []string) error {
			return errors.New("device is on fire")
		}}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=7 example.com/gpu=1"), false)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to device is on fire, " +
			"which is unexpected")
		d.queue.Submit(pod("b", "cpu=7"), false)
		d.expect("b Admit")
	})
}

// While a plugin thinks about its advice, the pods behind do not get ahead; and a plugin that does
// not answer is no reason to fail.
func TestAskingKeepsThePlaceInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{preferred: func(ctx context.Context) ([]string, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		r := p.Inventory().Resources["example.com/gpu"]
		r.Options.Preferred = true
		p.set(r)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=4 example.com/gpu=1"), false)
		d.queue.Submit(pod("b", "example.com/gpu=2"), false)
		d.queue.Submit(pod("c", "cpu=3"), false)
		time.Sleep(record.Patience)
		d.expect("c Admit")
		time.Sleep(2 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: no answer to GetPreferredAllocation yet from the "+
			"device plugin of example.com/gpu",
			"b Wait: WaitingForDevicePlugin: a device plugin has not said yet which devices it "+
				"prefers for default/a, which comes before it")
		time.Sleep(4 * time.Second)
		d.expect("b Reject: UnexpectedAdmissionError: Allocate failed due to requested number of "+
			"devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is "+
			"unexpected",
			"a Admit")
		said, _ := d.queue.Explained(t.Context(), "default", "a")
		want := "example.com/gpu of container main: context deadline exceeded"
		if len(said.Remarks.Ignored) != 1 || said.Remarks.Ignored[0] != want ||
			!strings.Contains(said.Text(), want) {
			t.Errorf("the record says that %q was ignored, want %q", said.Remarks.Ignored, want)
		}
	})
}
