package admission

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/deviceplugin"
)

func TestNoWaitRejectsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.set(deviceplugin.Resource{Name: "example.com/gpu"})
		d := open(t, dir, p, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to no healthy devices " +
			"present; cannot allocate unhealthy devices example.com/gpu, which is unexpected")
	})
}

// A pod that comes between the end of another one and the commit of its release finds what that one
// had free, as with the kubelet, whose device manager takes it back in memory.
func TestNoWaitSeesWhatIsBeingReleasedAsFree(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("old", "cpu=7 example.com/gpu=2"), false)
		d.expect("old Admit")
		d.queue.Release("old")
		d.queue.Submit(pod("first", "cpu=4 example.com/gpu=2"), false)
		d.queue.Submit(pod("second", "example.com/gpu=1"), false) // nothing is left for it
		d.queue.Submit(pod("third", "cpu=3"), false)
		d.now("first Admit, second Reject, third Admit")
	})
}

// What a pod holds that is still terminating is not free, whoever else is being released.
func TestNoWaitDoesNotWaitForTerminatingPods(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("stops", "cpu=4"), false)
		d.queue.Submit(pod("gone", "cpu=2"), false)
		d.now("stops Admit, gone Admit")
		d.queue.Leaving("stops")
		d.queue.Release("gone")
		d.queue.Submit(pod("new", "cpu=5"), false)
		synctest.Wait()
		if said := d.hear(); len(said) != 1 || !strings.HasPrefix(said[0], "new Reject: ") {
			t.Errorf("said %q, want that new is rejected", said)
		}
	})
}

// If the release cannot be recorded, nothing is free, and the pod is not left pending.
func TestNoWaitRejectsWhenTheReleaseFails(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Wait = 0 })
		d.queue.Submit(pod("old", "cpu=6"), false)
		d.expect("old Admit")
		d.stop() // the store has stopped: commits fail
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.queue.Run(ctx) }()
		d.queue.Release("old")
		d.queue.Submit(pod("new", "cpu=6"), false)
		d.expect("new Reject: UnexpectedAdmissionError: Allocate failed due to not enough cpus " +
			"available to satisfy request: requested=6, available=1, which is unexpected")
		cancel()
		<-done
	})
}

// While Allocate runs, nothing is said of the pod: the kubelet would be blocked in the call.
func TestNoWaitSaysNothingWhileAllocateRuns(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(context.Context, string, []string) error {
			time.Sleep(30 * time.Second)
			return nil
		}}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		time.Sleep(29 * time.Second)
		d.expect()
		time.Sleep(2 * time.Second)
		d.expect("a Admit")
	})
}
