package admission

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

func TestRestart(t *testing.T) {
	for name, test := range map[string]struct {
		bootID  string
		alive   bool
		away    bool // the plugin
		want    []string
		calls   int64
		waiting bool
	}{
		"same boot, sandbox alive, plugin away": {bootID: "boot-1", alive: true, away: true},
		"same boot, sandbox gone, plugin away":  {bootID: "boot-1", away: true},
		"new boot, plugin there":                {bootID: "boot-2", calls: 1},
		"new boot, plugin late": {
			bootID: "boot-2", away: true, calls: 1, waiting: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				first := &plugins{}
				first.offer("example.com/gpu", 4)
				d := open(t, dir, first, nil)
				d.queue.Submit(pod("other", "cpu=2 example.com/gpu=2"), false)
				d.expect("other Admit")
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
				d.expect("a Admit")
				d.queue.Release("other")
				synctest.Wait()
				before := d.store.State().Pods["a"]
				d.stop()

				p := &plugins{}
				if !test.away {
					p.offer("example.com/gpu", 4)
				}
				d = open(t, dir, p, func(c *Config) { c.BootID = test.bootID })
				defer d.stop()
				d.queue.Submit(pod("new", "cpu=2"), false)
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), test.alive)
				synctest.Wait()
				if test.waiting {
					p.offer("example.com/gpu", 4)
					d.queue.Poke()
					synctest.Wait()
				}
				after := d.store.State().Pods["a"]
				was, is := before.Containers["main"].Devices(), after.Containers["main"].Devices()
				if !after.CPUs().Equals(before.CPUs()) || is[0].IDs[0] != was[0].IDs[0] {
					t.Errorf("before %+v, after %+v: want the same CPUs and devices", before, after)
				}
				if after.BootID != test.bootID || p.calls.Load() != test.calls {
					t.Errorf("boot id %s, %d Allocate calls; want %s, %d",
						after.BootID, p.calls.Load(), test.bootID, test.calls)
				}
				said := strings.Join(d.hear(), "\n")
				if !strings.Contains(said, "a Admit") || !strings.Contains(said, "new Admit") {
					t.Errorf("said:\n%s\nwant both admitted", said)
				}
			})
		})
	}
}

// After a restart the store has pods that no source has desired since: they may be on their way
// out, so a pod that lacks what they hold waits. Once they are desired, they stay.
func TestWaitsForPodsThatOnlyTheStoreKnows(t *testing.T) {
	for name, desired := range map[string]bool{"removed": false, "desired": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				d := open(t, dir, &plugins{}, nil)
				d.queue.Submit(pod("old", "cpu=5"), false)
				d.expect("old Admit")
				d.stop()
				d = open(t, dir, &plugins{}, nil)
				defer d.stop()
				d.queue.Submit(pod("new", "cpu=6"), false)
				synctest.Wait()
				said := d.hear()
				if len(said) != 1 || !strings.HasPrefix(said[0], "new Wait: "+decide.ReasonWaitResources) {
					t.Fatalf("said %q, want that new waits for resources", said)
				}
				if !desired {
					d.queue.Release("old")
					d.expect("new Admit")
					return
				}
				d.queue.Submit(pod("old", "cpu=5"), true)
				synctest.Wait()
				said = d.hear()
				if len(said) != 2 || !strings.HasPrefix(said[0], "new Reject: ") ||
					said[1] != "old Admit" {
					t.Errorf("said %q, want new rejected and old admitted", said)
				}
			})
		})
	}
}

// A pod that comes back after a restart and needs another device keeps what is recorded of it while
// the plugin is asked, also from pods that came before it.
func TestRecordedIsNobodyElsesWhileAPluginIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		const limits = "cpu=1 example.com/gpu=1 example.com/fpga=1"
		first := &plugins{}
		first.offer("example.com/gpu", 1)
		first.offer("example.com/fpga", 1)
		d := open(t, dir, first, nil)
		d.queue.Submit(pod("old", limits), false)
		d.expect("old Admit")
		d.stop()

		p, n := newPairs(3), newNeeds()
		p.takes = 10 * time.Second
		r := p.Inventory().Resources["example.com/gpu"]
		r.Devices = r.Devices[1:] // the recorded one is gone
		p.set(r)
		p.offer("example.com/fpga", 1)
		n.set("new", lacksKey)
		d = open(t, dir, &p.plugins, func(c *Config) {
			c.Plugins, c.Needs, c.BootID = p, n, "boot-2"
		})
		defer d.stop()
		d.queue.Submit(pod("new", "cpu=1 example.com/fpga=1"), false)
		d.expect("new " + saidMissing)
		d.queue.Submit(pod("old", limits), false)
		synctest.Wait()
		d.arrives(n, "new", decide.Lack{})
		d.expect("new Wait: WaitingForResources: Allocate failed due to requested number of devices " +
			"unavailable for example.com/fpga. Requested: 1, Available: 0, which is unexpected; " +
			"other pods came first while it could not start")
		time.Sleep(20 * time.Second)
		d.expect("old Wait: WaitingForDevicePlugin: no answer to GetPreferredAllocation yet from the "+
			"device plugin of example.com/gpu", "old Admit")
		d.queue.Release("old")
		d.expect("new Admit")
	})
}
