package admission

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// choosing has devices chosen for the pod: "gpu=d0,d1".
func choosing(p *v1.Pod, choices ...string) *v1.Pod {
	p.Spec.SchedulerName, p.Annotations = "chooser", map[string]string{}
	for _, text := range choices {
		resource, ids, _ := strings.Cut(text, "=")
		p.Annotations["example.com/"+resource+"_container-main"] = ids
	}
	return p
}

// choose is a desk's configuration with a scheduler that chooses.
func choose(p Plugins, more ...func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Plugins, c.Rules.Choosers = p, topology.Choosers{{Scheduler: "chooser"}}
		c.Handlers = []decide.Handler{handlers.Placement}
		for _, change := range more {
			change(c)
		}
	}
}

// No plugin is asked about devices that are chosen. A pod gets them while a plugin is asked about pods before
// it, unless these have them.
func TestChosenDevicesBesidePodsThatAreAskedAbout(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(8)
		p.takes = 2 * time.Second
		d := open(t, dir, &p.plugins, choose(p))
		defer d.stop()
		d.together(func() {
			d.queue.Submit(pod("a", "example.com/gpu=2"), false)
			d.queue.Submit(pod("b", "example.com/gpu=2"), false)
			d.queue.Submit(choosing(pod("c", "example.com/gpu=2"), "gpu=d5,d7"), false)
			d.queue.Submit(choosing(pod("e", "example.com/gpu=1"), "gpu=d1"), false) // which b gets
		})
		time.Sleep(record.Patience)
		d.expect("c Admit")
		time.Sleep(10 * time.Second)
		if got := d.gpus(); got != "a=d0,d2 b=d1,d3 c=d5,d7" {
			t.Error(got)
		}
		const asked = "2 of d0 d1 d2 d3 d4 d5 d6 d7; 2 of d1 d3 d4 d6"
		if got := strings.Join(p.asked, "; "); got != asked {
			t.Errorf("asked %s", got)
		}
	})
}

// A pod whose chosen devices a pod before it may get waits until that is known.
func TestChosenDevicesOfAPodThatIsAskedAbout(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(4)
		p.takes = time.Second / 2
		d := open(t, dir, &p.plugins, choose(p))
		defer d.stop()
		d.together(func() {
			d.queue.Submit(pod("a", "example.com/gpu=3"), false)
			d.queue.Submit(choosing(pod("c", "example.com/gpu=2"), "gpu=d0,d1"), false)
			d.queue.Submit(choosing(pod("d", "example.com/gpu=1"), "gpu=d0"), false)
		})
		// a prefers d1 to d3, so that d0 is free for d.
		time.Sleep(10 * time.Second)
		synctest.Wait()
		said := d.hear()
		slices.Sort(said)
		if got, want := strings.Join(said, ", "), `a Admit, c Reject: ChosenDeviceUnavailable: annotation `+
			`example.com/gpu_container-main chooses device "d1", and another pod has it; choose one that `+
			`is free, d Admit`; got != want {
			t.Errorf("said %s, want %s", got, want)
		}
		if got := d.gpus(); got != "a=d1,d2,d3 d=d0" {
			t.Error(got)
		}
	})
}

// A chosen device that another pod gives back is waited for; one that it keeps is not.
func TestChosenDeviceThatAnotherPodHas(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 4)
		d := open(t, dir, p, choose(p))
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.expect("a Admit")
		const why = `annotation example.com/gpu_container-main chooses device "d0", and another pod has ` +
			`it; choose one that is free`
		d.queue.Submit(choosing(pod("b", "example.com/gpu=1"), "gpu=d0"), false)
		d.expect("b Reject: ChosenDeviceUnavailable: " + why)
		d.queue.Leaving("a", false)
		d.queue.Submit(choosing(pod("c", "example.com/gpu=1"), "gpu=d0"), false)
		d.expect("c Wait: WaitingForResources: " + why +
			"; pods that are terminating hold what is missing")
		d.queue.Submit(pod("other", "example.com/gpu=1"), false)
		d.queue.Release("a")
		synctest.Wait()
		if said := d.outcomes(); said["c"] != "Admit" || said["other"] != "Admit" {
			t.Errorf("said %v", said)
		}
		if got := d.gpus(); got != "c=d0 other=d1" {
			t.Error(got)
		}
	})
}

// A device that is not healthy is waited for, one that there is not is not; and without the flag, or
// of another scheduler, such annotations mean nothing.
func TestChosenDevicesThatAreNotThere(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 4)
		r := p.Inventory().Resources["example.com/gpu"]
		r.Devices[3].Healthy = false
		d := open(t, dir, p, choose(p))
		defer d.stop()
		const start = "annotation example.com/gpu_container-main"
		d.queue.Submit(choosing(pod("a", "example.com/gpu=1"), "gpu=d3"), false)
		d.expect("a Wait: WaitingForHealthyDevices: " + start + ` chooses ` +
			`device "d3", and it is not healthy; choose another one, or wait until it is; devices that ` +
			`are unhealthy now would do`)
		d.queue.Submit(choosing(pod("b", "example.com/gpu=1"), "gpu=d9"), false)
		d.expect("b Reject: ChosenDeviceUnavailable: " + start + ` chooses device "d9", and its device ` +
			`plugin lists none of that id; choose one that the plugin lists`)
		d.queue.Submit(choosing(pod("c", "example.com/gpu=1"), "gpu=d0,d1"), false)
		d.expect("c Reject: DeviceChoiceInvalid: " + start + ": 2 devices are named, and container main " +
			"asks for 1 of example.com/gpu; name as many as it asks for, or remove the annotation")
		other := choosing(pod("d", "example.com/gpu=1"), "gpu=d2,d1")
		other.Spec.SchedulerName = "default-scheduler"
		d.queue.Submit(other, false)
		d.expect("d Admit")
		if got := d.gpus(); got != "d=d0" {
			t.Error(got)
		}
	})
}

// Another choice for a pod that waits counts; for one that was admitted it does not, also after a
// restart and a reboot.
func TestAnotherChoice(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 4)
		d := open(t, dir, p, choose(p))
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.expect("a Admit")
		d.queue.Leaving("a", false)
		d.queue.Submit(choosing(pod("c", "example.com/gpu=1"), "gpu=d0"), false)
		synctest.Wait()
		d.hear()
		d.queue.Submit(choosing(pod("c", "example.com/gpu=1"), "gpu=d2"), false)
		d.expect("c Admit")
		d.queue.Submit(choosing(pod("c", "example.com/gpu=1"), "gpu=d3"), false)
		d.queue.Submit(choosing(pod("e", "example.com/gpu=1"), "gpu=d3"), false)
		d.expect("e Admit")
		d.stop()
		for _, boot := range []string{"boot-1", "boot-2"} {
			d = open(t, dir, p, choose(p, func(c *Config) { c.BootID = boot }))
			d.queue.Submit(choosing(pod("c", "example.com/gpu=1"), "gpu=d1"), false)
			d.expect("c Admit")
			if got := d.gpus(); got != "a=d0 c=d2 e=d3" {
				t.Error(boot, got)
			}
			d.stop()
		}
	})
}

// A dry run says what admission would.
func TestDryRunOfChosenDevices(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(4)
		d := open(t, dir, &p.plugins, choose(p))
		defer d.stop()
		d.queue.Submit(choosing(pod("a", "example.com/gpu=1"), "gpu=d3"), false)
		d.expect("a Admit")
		s, err := d.queue.Snapshot(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for choice, want := range map[string]string{
			"d1": "Admit", "d3": "Reject ChosenDeviceUnavailable", "d1,d2": "Reject DeviceChoiceInvalid",
		} {
			did := s.DryRun(choosing(pod("b", "example.com/gpu=1"), "gpu="+choice), allocation.PodClaims{}, nil)
			if got := strings.TrimSpace(string(did.Outcome) + " " + did.Reason); got != want ||
				len(did.Unasked) > 0 {
				t.Errorf("%s: %s, %s, unasked %q", choice, got, did.Message, did.Unasked)
			}
			record := did.Record()
			if did.Outcome == decide.Admit && !strings.Contains(record.Text(), "(gets d1)") ||
				did.Reason == "ChosenDeviceUnavailable" && !strings.Contains(record.Text(),
					"without the annotation example.com/gpu_container-main") {
				t.Error(record.Text())
			}
		}
	})
}
