package admission

import (
	"testing"
	"time"
)

func TestWaitsForWhatTerminatingPodsHold(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("old", "cpu=6"), false)
		d.expect("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("new", "cpu=4"), false)
		d.expect("new Wait: WaitingForResources: Allocate failed due to not enough cpus " +
			"available to satisfy request: requested=4, available=1, which is unexpected; pods " +
			"that are terminating hold what is missing")
		d.queue.Release("old")
		d.expect("new Admit")
	})
}

func TestWaitsForThePluginAndGivesUpAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.queue.Submit(pod("b", "example.com/nic=2"), false)
		d.queue.Submit(pod("c", "cpu=1"), false)
		d.expect(
			"a Wait: WaitingForDevicePlugin: no device plugin has registered example.com/gpu",
			"b Wait: WaitingForDevicePlugin: no device plugin has registered example.com/nic",
			"c Admit")
		time.Sleep(time.Minute)
		p.offer("example.com/gpu", 1)
		d.queue.Poke()
		d.expect("a Admit")
		time.Sleep(59 * time.Second)
		d.expect()
		time.Sleep(2 * time.Second)
		d.expect("b Reject: OutOfexample.com/nic: Node didn't have enough resource: " +
			"example.com/nic, requested: 2, used: 0, capacity: 0")
	})
}

// Two things are missing, and both may come: neither alone is a reason to reject.
func TestWaitsForAPluginBesideATerminatingPod(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.expect("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("new", "example.com/gpu=1 example.com/nic=1"), false)
		d.expect(
			"new Wait: WaitingForDevicePlugin: no device plugin has registered example.com/nic")
		p.offer("example.com/nic", 1)
		d.queue.Poke()
		d.expect("new Wait: WaitingForResources: Allocate failed due to requested number of " +
			"devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is " +
			"unexpected; pods that are terminating hold what is missing")
		d.queue.Release("old")
		d.expect("new Admit")
	})
}

// A pod that comes between the end of another one and the commit of its release waits for that
// moment, and is told for whom.
func TestWaitsForAReleaseThatIsBeingRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.queue.Submit(pod("other", "cpu=1"), false)
		d.now("old Admit, other Admit")
		d.together(func() {
			d.queue.Release("other")
			d.queue.Release("old")
			d.queue.Submit(pod("new", "example.com/gpu=1"), false)
		})
		d.expect("new Wait: WaitingForResources: Allocate failed due to requested number of "+
			"devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is "+
			"unexpected; pods that are terminating hold what is missing; being released: "+
			"default/old", "new Admit")
	})
}
