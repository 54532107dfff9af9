package devicemanager

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/cordon"
)

// The changes of a device that flaps at 20 Hz are shown once a second, each is counted, and its
// final health is shown.
func TestFlappingDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		p, err := New(Config{
			Dirs: Dirs{Plugins: t.TempDir()}, Graces: DefaultGraces(), Changed: func() { reported++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		l, health, counted := newTestLink(gpu, "/a"), healthSaid{}, 0
		l.behavior.complaints.Store(&complaints{})
		var due time.Time
		say := func(unwell bool) {
			all := someDevices(4)
			if unwell {
				all.devices[1].Healthy = false
				all.healthy--
			}
			p.table.apply(event{kind: linkListed, link: l, list: all})
			counting := healthSaid{gpu: health[gpu]}
			counting.follow(p.table.view(0).inventory, func(_ string, changed []*Device) {
				counted += len(changed)
			})
			due = p.publish(t.Context(), health)
		}
		p.table.apply(event{kind: linkRegistered, link: l})
		say(false)
		reported = 0
		const seconds, hertz = 5, 20
		for i := range seconds * hertz {
			time.Sleep(time.Second / hertz)
			if !due.IsZero() && !time.Now().Before(due) {
				due = p.publish(t.Context(), health)
			}
			say(i%2 == 0)
		}
		say(true)
		if reported == 0 || reported > seconds+1 {
			t.Errorf("told %d times in %d s", reported, seconds)
		}
		if counted != seconds*hertz+1 {
			t.Errorf("counted %d changes, there were %d", counted, seconds*hertz+1)
		}
		time.Sleep(calmPeriod)
		due = p.publish(t.Context(), health)
		if n := p.Inventory().Resources[gpu].Allocatable; n != 3 || !due.IsZero() {
			t.Errorf("at last %d are allocatable, more is due at %s", n, due)
		}
		found := false
		for _, c := range p.Peers()[0].Complaints {
			found = found || c.Reason == "Flapping" && strings.Contains(c.Message, "device 1 changed more")
		}
		if !found {
			t.Errorf("complaints are %v", p.Peers()[0].Complaints)
		}
	})
}

// Neither news of other devices nor an administrator's cordon is held back.
func TestCalmHoldsBackOneResource(t *testing.T) {
	book, err := cordon.Open(filepath.Join(t.TempDir(), cordon.FileName))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Cordons: book})
	plugin, other := r.plugin(sim.Config{Resource: gpu}), r.plugin(sim.Config{Resource: nic})
	r.untilConnected(gpu)
	r.untilConnected(nic)
	for i := range 3 {
		plugin.must(plugin.SetHealth(t.Context(), i%2 == 1, "gpu-1"))
		other.must(other.SetHealth(t.Context(), i%2 == 1, fmt.Sprint("gpu-", i)))
	}
	if _, err := r.Cordon(t.Context(), cordon.Cordon{Resource: gpu, ID: "gpu-5"}); err != nil {
		t.Fatal(err)
	}
	if d, _ := r.Inventory().Resources[gpu].Find("gpu-5"); !d.Cordoned {
		t.Error("it is not cordoned when Cordon returns")
	}
	r.until("the last of all", func(inv Inventory) bool {
		return inv.Resources[gpu].Allocatable == 6 && healthy(inv.Resources[nic].Devices) == 6
	})
}
