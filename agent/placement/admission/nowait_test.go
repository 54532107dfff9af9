package admission

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

func TestNoWaitRejectsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.set(devicemanager.Resource{Name: "example.com/gpu"})
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
		d.queue.Leaving("stops", false)
		d.queue.Release("gone")
		d.queue.Submit(pod("new", "cpu=5"), false)
		synctest.Wait()
		if said := d.hear(); len(said) != 1 || !strings.HasPrefix(said[0], "new Reject: ") {
			t.Errorf("said %q, want that new is rejected", said)
		}
	})
}

// What a pod holds that has come to its end by itself is as good as free, whatever it is, though the
// runtime still stops its sandbox: so it is to the kubelet.
func TestNoWaitWaitsForPodsThatHaveEnded(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, func(c *Config) { c.Wait, c.Handlers = 0, []decide.Handler{handlers.Ports} })
		defer d.stop()
		port := func(uid string) *v1.Pod {
			p := pod(uid, "cpu=1")
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
			return p
		}
		d.queue.Submit(pod("old", "cpu=5 example.com/gpu=2"), false)
		d.expect("old Admit")
		d.queue.Submit(port("web"), false)
		d.expect("web Admit")
		d.queue.Leaving("old", true)
		d.queue.Leaving("web", true)
		d.queue.Submit(pod("new", "cpu=4 example.com/gpu=1"), false)
		d.queue.Submit(port("next"), false)
		d.queue.Submit(pod("shared", "cpu=3"), false) // nothing is left for it
		synctest.Wait()
		if said := d.outcomes(); len(said) != 1 || said["shared"] != "Reject" {
			t.Errorf("while both end: %v, want that shared is rejected", said)
		}
		d.queue.Release("old")
		d.expect("new Admit")
		d.queue.Release("web")
		d.expect("next Admit")
	})
}

// A pod that does not run any more when the agent starts, and whose plugin is away, is rejected as by
// the kubelet; with its plugin back, or while it runs, it is as it was.
func TestNoWaitAfterARestart(t *testing.T) {
	for name, test := range map[string]struct {
		alive, there bool
		want         string
	}{
		"gone, plugin away":  {false, false, "Reject"},
		"gone, plugin there": {false, true, "Admit"},
		"alive, plugin away": {true, false, "Admit"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				now := func(c *Config) { c.Wait = 0 }
				p := &plugins{}
				p.offer("example.com/gpu", 2)
				d := open(t, dir, p, now)
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
				d.expect("a Admit")
				d.stop()
				next := &plugins{}
				if test.there {
					next.offer("example.com/gpu", 2)
				}
				d = open(t, dir, next, now)
				defer d.stop()
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), test.alive)
				synctest.Wait()
				if said := d.outcomes(); said["a"] != test.want {
					t.Errorf("said %v, want %s", said, test.want)
				}
				if test.there && next.calls.Load() > 0 {
					t.Error("Allocate was called again")
				}
			})
		})
	}
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

// owing has a pod's two devices be released by a plugin that has not answered yet that it knows.
func owing(t *testing.T, dir string, wait time.Duration) *desk {
	t.Helper()
	p := &plugins{}
	p.offer("example.com/gpu", 2)
	of := p.Inventory().Resources["example.com/gpu"]
	of.Options.Released = devicemanager.ReleasedWanted
	p.set(of)
	d := open(t, dir, p, func(c *Config) { c.Wait = wait })
	d.queue.Submit(pod("old", "example.com/gpu=2"), false)
	d.expect("old Admit")
	d.queue.Release("old")
	synctest.Wait()
	if n := d.released.Load(); n != 1 {
		t.Fatalf("%d pods are released; a plugin holds up no pod's end", n)
	}
	return d
}

// What plugins are still to hear of holds up no pod that would not have a place then either.
func TestOwedDevicesOfOthersKeepNobody(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := owing(t, dir, 0)
		d.plugins.offer("example.com/nic", 1)
		d.queue.Submit(pod("a", "example.com/nic=1"), false)
		d.expect("a Admit")
		d.stop()
		p := &plugins{}
		p.set(d.plugins.Inventory().Resources["example.com/gpu"])
		p.set(devicemanager.Resource{Name: "example.com/nic"})
		d = open(t, dir, p, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/nic=1"), false)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to no healthy devices " +
			"present; cannot allocate unhealthy devices example.com/nic, which is unexpected")
	})
}

// heard has the plugin have heard of all releases.
func (d *desk) heard() {
	d.t.Helper()
	for _, o := range d.store.State().PendingReleases {
		if err := d.store.Commit(d.t.Context(), allocation.Change{Released: o}); err != nil {
			d.t.Fatal(err)
		}
	}
	d.queue.Poke()
}

// A device of which the plugin has not heard that it is released is given to nobody. Pods wait for
// that, also where they do not wait otherwise, and are told why when it takes long.
func TestOwedDevicesAreNotGiven(t *testing.T) {
	const why = "the device plugin has not answered yet that it knows of the release of d0 of " +
		"example.com/gpu, which default/old had"
	bubble(t, func(t *testing.T, dir string) {
		d := owing(t, dir, 0)
		defer d.stop()
		d.queue.Submit(pod("new", "example.com/gpu=1"), false)
		d.queue.Submit(pod("others", "cpu=2"), false)
		d.expect("others Admit")
		time.Sleep(record.SlowAnswer)
		d.expect("new Wait: WaitingForDevicePlugin: " + why)
		d.heard()
		d.expect("new Admit")
	})
	bubble(t, func(t *testing.T, dir string) {
		d := owing(t, dir, time.Minute)
		defer d.stop()
		d.queue.Submit(pod("new", "example.com/gpu=1"), false)
		d.expect("new Wait: WaitingForResources: Allocate failed due to requested number of devices " +
			"unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected; pods " +
			"that are terminating hold what is missing; " + why)
		d.heard()
		d.expect("new Admit")
	})
}

// What is owed is so after a restart, and more devices than there ever will be are refused at once.
func TestOwedDevicesAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := owing(t, dir, 0)
		d.stop()
		d = open(t, dir, d.plugins, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("many", "example.com/gpu=3"), false)
		d.expect("many Reject: UnexpectedAdmissionError: Allocate failed due to requested number of " +
			"devices unavailable for example.com/gpu. Requested: 3, Available: 0, which is unexpected")
		d.queue.Submit(pod("new", "example.com/gpu=2"), false)
		d.expect()
		d.heard()
		d.expect("new Admit")
	})
}
