package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// outcomes waits until nothing moves and returns the last outcome of each pod since the last time,
// in words like "big Wait WaitingForResources".
func (d *desk) outcomes() map[string]string {
	d.t.Helper()
	synctest.Wait()
	out := map[string]string{}
	for _, line := range d.hear() {
		words := strings.Fields(strings.ReplaceAll(line, ":", ""))
		if words[1] == string(decide.Wait) {
			out[words[0]] = words[1] + " " + words[2]
			continue
		}
		out[words[0]] = words[1]
	}
	return out
}

// now compares the last outcomes of the pods that something was said of.
func (d *desk) now(want string) {
	d.t.Helper()
	var got []string
	outcomes := d.outcomes()
	for _, pair := range strings.Split(want, ", ") {
		name, _, _ := strings.Cut(pair, " ")
		if said, ok := outcomes[name]; ok {
			got = append(got, name+" "+said)
			delete(outcomes, name)
		}
	}
	if strings.Join(got, ", ") != want && want != "" || len(outcomes) > 0 {
		d.t.Fatalf("said %q and %v, want %q", strings.Join(got, ", "), outcomes, want)
	}
}

// roomy lets more pods in than the desk does.
func roomy(pods int64) func(*Config) {
	return func(c *Config) {
		hardware := c.Hardware()
		hardware.Allocatable = hardware.Allocatable.DeepCopy()
		hardware.Allocatable[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
		c.Hardware = func() machine.Hardware { return hardware }
	}
}

const (
	forResources = "Wait " + decide.ReasonWaitResources
	forPlugin    = "Wait " + decide.ReasonWaitPlugin
	forDevices   = "Wait " + decide.ReasonWaitDevices
)

// What becomes free piece by piece goes to the pod that waits for it, not to smaller ones that come
// later; those get what it has no claim to.
func TestABigPodIsNotStarvedBySmallOnes(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, roomy(100))
		defer d.stop()
		d.queue.Submit(pod("old-1", "cpu=2"), false)
		d.queue.Submit(pod("old-2", "cpu=2"), false)
		d.now("old-1 Admit, old-2 Admit")
		d.queue.Leaving("old-1", false)
		d.queue.Leaving("old-2", false)
		d.queue.Submit(pod("big", "cpu=6"), false) // of seven
		d.now("big " + forResources)
		d.queue.Submit(pod("small-1", "cpu=1"), false) // the seventh is nobody's
		d.now("small-1 Admit")
		d.queue.Submit(pod("small-2", "cpu=1"), false)
		d.now("small-2 Reject") // nothing will be left of what terminates
		d.queue.Release("old-1")
		d.queue.Submit(pod("small-3", "cpu=1"), false)
		d.now("small-3 Reject")
		d.queue.Release("old-2")
		d.now("big Admit")
	})
}

// What is only counted goes in the order of arrival too.
func TestMemoryGoesToWhoCameFirst(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, roomy(100))
		defer d.stop()
		d.queue.Submit(pod("old-1", "memory=6Gi"), false)
		d.queue.Submit(pod("old-2", "memory=8Gi"), false)
		d.now("old-1 Admit, old-2 Admit")
		d.queue.Leaving("old-1", false)
		d.queue.Leaving("old-2", false)
		d.queue.Submit(pod("big", "memory=10Gi"), false) // of 16
		d.queue.Submit(pod("small", "memory=4Gi"), false)
		d.queue.Submit(pod("more", "memory=3Gi"), false)
		d.now("big " + forResources + ", small " + forResources + ", more Reject")
		d.queue.Release("old-2")
		d.now("big Admit")
		d.queue.Release("old-1")
		d.now("small Admit")
	})
}

// A pod that waits for a plugin has its CPUs, and its devices as far as they are known.
func TestAPodThatWaitsForItsPluginHoldsTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		d := open(t, dir, p, roomy(100))
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=5 example.com/gpu=2"), false)
		d.queue.Submit(pod("b", "cpu=3"), false)
		d.queue.Submit(pod("c", "cpu=2"), false)
		d.now("a " + forPlugin + ", b Reject, c Admit")
		p.offer("example.com/gpu", 2)
		d.queue.Poke()
		d.now("a Admit")

		gone := p.Inventory().Resources["example.com/gpu"]
		gone.Connected = false
		gone.Devices = []*devicemanager.Device{{ID: "d0"}, {ID: "d1"}, {ID: "d2"}, {ID: "d3"}}
		p.set(gone)
		d.queue.Submit(pod("e", "example.com/gpu=1"), false)
		d.now("e " + forPlugin)
		p.offer("example.com/gpu", 3)
		d.queue.Submit(pod("f", "example.com/gpu=1"), false) // before the queue is told
		d.now("e Admit, f Reject")
	})
}

func TestWaitsForDevicesToBeHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		health := func(healthy ...bool) {
			r := devicemanager.Resource{Name: "example.com/gpu", Connected: true}
			for i, h := range healthy {
				r.Devices = append(r.Devices,
					&devicemanager.Device{ID: fmt.Sprint("d", i), Healthy: h})
			}
			p.set(r)
		}
		health(true, false)
		d := open(t, dir, p, roomy(100))
		defer d.stop()
		d.queue.Submit(pod("three", "example.com/gpu=3"), false)
		d.queue.Submit(pod("two", "example.com/gpu=2"), false)
		d.queue.Submit(pod("one", "example.com/gpu=1"), false)
		d.expect("three Reject: UnexpectedAdmissionError: Allocate failed due to requested number "+
			"of devices unavailable for example.com/gpu. Requested: 3, Available: 1, which is "+
			"unexpected",
			"two Wait: WaitingForHealthyDevices: Allocate failed due to requested number of "+
				"devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is "+
				"unexpected; devices that are unhealthy now would do",
			"one Reject: UnexpectedAdmissionError: Allocate failed due to requested number of "+
				"devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is "+
				"unexpected")
		health(true, true)
		d.queue.Poke()
		d.expect("two Admit")
		d.queue.Release("two")
		health(false, false)
		d.queue.Submit(pod("next", "example.com/gpu=1"), false)
		d.now("next " + forDevices)
		time.Sleep(2 * time.Minute)
		d.expect("next Reject: UnexpectedAdmissionError: Allocate failed due to no healthy " +
			"devices present; cannot allocate unhealthy devices example.com/gpu, which is " +
			"unexpected")
	})
}

// A claim that breaks is replaced, and its pod keeps its place in the order: what pods behind it
// have a claim to is its own first.
func TestABrokenClaimIsReplacedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 3)
		d := open(t, dir, p, roomy(100))
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=3"), false)
		d.now("old Admit")
		d.queue.Leaving("old", false)
		d.queue.Submit(pod("first", "example.com/gpu=2"), false)
		d.queue.Submit(pod("second", "example.com/gpu=1"), false)
		d.now("first " + forResources + ", second " + forResources)

		p.offer("example.com/gpu", 2) // the third one is gone for good
		d.queue.Poke()
		d.now("second Reject")
		d.queue.Release("old")
		d.now("first Admit")
	})
}

// A pod is admitted as soon as it can be, not when its claim is free: here other CPUs are, sooner.
func TestWhatIsFreeSoonerIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, roomy(100))
		defer d.stop()
		d.queue.Submit(pod("slow", "cpu=3"), false)
		d.queue.Submit(pod("quick", "cpu=4"), false)
		d.now("slow Admit, quick Admit")
		d.queue.Leaving("slow", false)
		d.queue.Submit(pod("new", "cpu=3"), false)
		d.now("new " + forResources)
		d.queue.Leaving("quick", false)
		d.queue.Release("quick")
		d.now("new Admit")
		d.queue.Submit(pod("next", "cpu=4"), false)
		d.now("next " + forResources)
		d.queue.Release("slow")
		d.now("next Admit")
	})
}

// A pod that gives up leaves its claim to those who wait behind it.
func TestAClaimEndsWithItsPod(t *testing.T) {
	for name, end := range map[string]func(d *desk){
		"withdrawn": func(d *desk) { d.queue.Release("big") },
		"leaving":   func(d *desk) { d.queue.Leaving("big", false) },
		"deadline": func(d *desk) {
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				d := open(t, dir, &plugins{}, roomy(100))
				defer d.stop()
				d.queue.Submit(pod("old-1", "cpu=3"), false)
				d.queue.Submit(pod("old-2", "cpu=3"), false)
				d.now("old-1 Admit, old-2 Admit")
				d.queue.Leaving("old-1", false)
				d.queue.Leaving("old-2", false)
				d.queue.Submit(pod("big", "cpu=5"), false)
				d.now("big " + forResources)
				time.Sleep(time.Minute)
				d.queue.Submit(pod("small", "cpu=2"), false)
				d.queue.Submit(pod("next", "cpu=4"), false)
				d.now("small " + forResources + ", next Reject")
				d.queue.Release("old-1") // big has that
				d.now("")
				end(d)
				if name == "deadline" {
					d.now("big Reject, small Admit")
					return
				}
				d.now("small Admit")
			})
		})
	}
}

// Between a cause and what it brings about no time passes: nothing is looked for at intervals.
func TestAdmittedWithinAMomentOfTheCause(t *testing.T) {
	const moment = 100 * time.Millisecond
	for name, test := range map[string]struct {
		request string
		clear   func(d *desk, p *plugins)
	}{
		"release": {"cpu=5", func(d *desk, _ *plugins) { d.queue.Release("old") }},
		"plugin registered": {"example.com/nic=1", func(d *desk, p *plugins) {
			p.offer("example.com/nic", 1)
			d.queue.Poke()
		}},
		"device healthy": {"example.com/gpu=1", func(d *desk, p *plugins) {
			p.offer("example.com/gpu", 1)
			d.queue.Poke()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				p := &plugins{}
				p.set(devicemanager.Resource{
					Name: "example.com/gpu", Connected: true,
					Devices: []*devicemanager.Device{{ID: "d0"}},
				})
				d := open(t, dir, p, roomy(100))
				defer d.stop()
				d.queue.Submit(pod("old", "cpu=4"), false)
				d.now("old Admit")
				d.queue.Leaving("old", false)
				d.queue.Submit(pod("new", test.request), false)
				if said := d.outcomes()["new"]; !strings.HasPrefix(said, "Wait ") {
					t.Fatalf("said %q, want new to wait", said)
				}
				time.Sleep(17 * time.Second)
				cause := time.Now()
				test.clear(d, p)
				for d.outcomes()["new"] != "Admit" {
					time.Sleep(time.Millisecond)
					if time.Since(cause) > moment {
						t.Fatalf("not admitted %v after the cause has cleared", moment)
					}
				}
			})
		})
	}
}

// A waiting pod tells why once, however often it is looked at.
func TestWaitingIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		d := open(t, dir, p, roomy(1000))
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.now("a " + forPlugin)
		for i := range 50 {
			p.offer("example.com/nic", i)
			d.queue.Poke()
			uid := fmt.Sprint("other-", i)
			d.queue.Submit(pod(uid, "memory=1Mi"), false)
			d.now(uid + " Admit")
			d.queue.Release(types.UID(uid))
			d.now("")
		}
	})
}

// Under a deadline that a plugin's call outlasts, the pod is rejected at the deadline.
func TestAHangingPluginDoesNotOutlastTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := hangs(30 * time.Second)
		p.offer("example.com/gpu", 4)
		d := open(t, dir, p, roomy(100))
		defer d.stop()
		for _, uid := range []string{"a", "b", "c", "d"} { // side by side, not one after the other
			d.queue.Submit(pod(uid, "example.com/gpu=1"), false)
		}
		time.Sleep(100 * time.Second)
		if said := d.outcomes(); len(said) != 4 || said["a"] != forPlugin {
			t.Fatalf("said %v, want all four to wait", said)
		}
		if calls := p.calls.Load(); calls != 4*4 {
			t.Errorf("%d calls in 100 s, want one after the other for each pod: 16", calls)
		}
		time.Sleep(20*time.Second + time.Millisecond)
		d.now("a Reject, b Reject, c Reject, d Reject")
	})
}

// A plugin that does not answer what it prefers is asked once for a pod.
func TestASilentPluginIsAskedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := hangs(0)
		p.offer("example.com/gpu", 9)
		r := p.Inventory().Resources["example.com/gpu"]
		r.Options.Preferred = true
		p.set(r)
		d := open(t, dir, p, nil)
		defer d.stop()
		wide := pod("wide", "example.com/gpu=1")
		for i := range 3 {
			more := *wide.Spec.Containers[0].DeepCopy()
			more.Name = fmt.Sprint("more-", i)
			wide.Spec.Containers = append(wide.Spec.Containers, more)
		}
		d.queue.Submit(wide, false)
		time.Sleep(5*time.Second + time.Millisecond)
		d.now("wide Admit")
	})
}

// hangs is a plugin that takes five seconds for what it prefers before it gives up, and so long for
// Allocate.
func hangs(allocate time.Duration) *plugins {
	until := func(ctx context.Context, d time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	p := &plugins{preferred: func(ctx context.Context) ([]string, error) {
		return nil, until(ctx, 5*time.Second)
	}}
	if allocate > 0 {
		p.allocate = func(ctx context.Context, _ string, _ []string) error {
			return until(ctx, allocate)
		}
	}
	return p
}
