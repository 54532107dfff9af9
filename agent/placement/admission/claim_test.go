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
)

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
