package admission

import (
	"strings"
	"testing"
	"testing/synctest"
)

// A pod keeps what the store has of it. Allocate is called again after a reboot.
func TestRestart(t *testing.T) {
	for name, test := range map[string]struct {
		bootID string
		away   bool // the plugin
		calls  int64
	}{
		"same boot": {bootID: "boot-1", away: true},
		"new boot":  {bootID: "boot-2", calls: 1},
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
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
				synctest.Wait()
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
