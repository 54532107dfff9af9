package devicemanager

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/test/scratch"
	"github.com/numalet/numalet/topology"
)

// Addresses that a plugin names come with its list, with new devices too, and are kept over a restart
// while the plugin is away. One that is none is left out.
func TestPlaces(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), recall.FileName)
	cfg := Config{Dirs: Dirs{Plugins: scratch.Dir(t)}, Before: Before{Lists: recallBook(t, path)},
		Graces: DefaultGraces(), NodeIDs: topology.NewNodeSet(0, 1, 2, 3)}
	r := newRig(t, cfg)
	devices := spread(t, 3, "0-3")
	devices[0].PCI, devices[1].PCI = "00000000:1B:00.0", "eth0"
	plugin := r.plugin(sim.Config{Resource: gpu, Devices: devices})
	want := map[string]string{"gpu-0": "0000:1b:00.0"}
	if got := r.untilConnected(gpu); !maps.Equal(got.Addresses, want) || !got.Options.Places {
		t.Errorf("with the first list the addresses are %v, want %v", got.Addresses, want)
	}
	calls := func() int { return r.Peers()[0].Calls[rpcPlaces].All }
	first := calls()
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-0"))
	r.until("an unhealthy device", func(i Inventory) bool { return healthy(i.Resources[gpu].Devices) == 2 })
	if now := calls(); now != first {
		t.Errorf("for a device's health it was asked %d times where devices are", now-first)
	}
	plugin.must(plugin.Add(t.Context(), sim.Device{ID: "gpu-9", Healthy: true, PCI: "0000:9d:00.0"}))
	want["gpu-9"] = "0000:9d:00.0"
	now := r.until("a new device", func(i Inventory) bool { return len(i.Resources[gpu].Devices) == 4 })
	if got := now.Resources[gpu].Addresses; !maps.Equal(got, want) {
		t.Errorf("with a new device the addresses are %v, want %v", got, want)
	}
	r.stop()
	plugin.stop()
	cfg.Before.Lists = recallBook(t, path)
	r = newRig(t, cfg)
	if got := r.Inventory().Resources[gpu]; !maps.Equal(got.Addresses, want) || got.Connected {
		t.Errorf("after a restart the addresses are %v, want %v", got.Addresses, want)
	}
}

// A locator asks about each device until it is told, about so many at once, and forgets those that are
// gone.
func TestLocator(t *testing.T) {
	var w locator
	var asked []string
	answers := true
	ask := func(ids []string) (map[string]string, bool) {
		out := map[string]string{}
		for _, id := range ids {
			out[id] = "at " + id
		}
		if asked = ids; !answers {
			return nil, false
		}
		return out, true
	}
	list := func(ids ...string) (out []*Device) {
		for _, id := range ids {
			out = append(out, &Device{ID: id})
		}
		return out
	}
	for _, step := range []struct {
		ids, asked, known []string
		mute              bool
	}{
		{ids: []string{"a", "b"}, asked: []string{"a", "b"}, known: []string{"a", "b"}},
		{ids: []string{"b", "a"}, known: []string{"a", "b"}},
		{ids: []string{"a", "c"}, asked: []string{"c"}, known: []string{"a"}, mute: true},
		{ids: []string{"a", "c"}, asked: []string{"c"}, known: []string{"a", "c"}},
		{ids: []string{"c"}, known: []string{"c"}},
		{ids: []string{"a", "c"}, asked: []string{"a"}, known: []string{"a", "c"}},
	} {
		asked, answers = nil, !step.mute
		got := w.of(list(step.ids...), ask)
		if known := slices.Sorted(maps.Keys(got)); !slices.Equal(asked, step.asked) ||
			!slices.Equal(known, step.known) {
			t.Errorf("%v: asked about %v and knows %v", step, asked, known)
		}
	}
	var many []string
	for i := range mostPlaces + 2 {
		many = append(many, fmt.Sprint("x", i))
	}
	answers = true
	for _, want := range []int{mostPlaces, 2, 0} {
		asked = nil
		if w.of(list(many...), ask); len(asked) != want {
			t.Errorf("asked about %d devices, want %d", len(asked), want)
		}
	}
}
