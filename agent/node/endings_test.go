package node

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/node/machine"
)

// What ends pods follows the settings: without thresholds nothing is short, and limits of local storage are kept
// all the same.
func TestEvictionsFollowSettings(t *testing.T) {
	const evictions, kernel, limits = "evictions", "memory as the kernel tells", "limits of local storage"
	for _, tt := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{evictions, kernel, limits}},
		{[]string{"--eviction-hard=memory.available<0%,nodefs.available<0%,imagefs.available<0%," +
			"nodefs.inodesFree<0%,imagefs.inodesFree<0%"}, []string{limits}},
	} {
		cfg, err := config.FromArgs(append(tt.flags, "--topology-from=fixture:laptop", "--root-dir="+t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		hardware, err := machine.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		h := &Host{Node: Node{Identity: Identity{Settings: cfg, Name: "n", Hardware: hardware}},
			Pressure: new(eviction.Pressure)}
		h.Events = noEvents{}
		e, err := NewEvictions(h, EvictionsConfig{
			Active: func() []*v1.Pod { return nil },
			Meter:  func(*wake.Kernel) eviction.Meter { return eviction.Meter{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range e.Parts() {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, tt.want) {
			t.Errorf("%q: there run %q, want %q", tt.flags, names, tt.want)
		}
		if short := slices.Contains(names, evictions); short {
			continue
		}
		if got := e.Shortage(t.Context()); got.Node != "n" || e.ShortOf() != nil {
			t.Errorf("without thresholds the node is short of %+v, %q", got, e.ShortOf())
		}
	}
}

// noEvents is a recorder that nothing is told.
type noEvents struct{ Events }
