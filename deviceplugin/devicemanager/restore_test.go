package devicemanager

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/test/scratch"
	"github.com/numalet/numalet/topology"
)

func recallBook(t *testing.T, path string) *recall.Book {
	t.Helper()
	book, err := recall.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return book
}

// After a restart of the agent while the plugin is away, the numbers are as without the restart.
func TestRestartWhileThePluginIsAway(t *testing.T) {
	root := scratch.Dir(t)
	path := filepath.Join(root, recall.FileName)
	cordons, err := cordon.Open(filepath.Join(root, cordon.FileName))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Dirs: Dirs{Plugins: scratch.Dir(t)}, Cordons: cordons, Before: Before{Lists: recallBook(t, path)},
		Graces: DefaultGraces(), NodeIDs: topology.NewNodeSet(0, 1, 2, 3),
		Registry: metrics.NewKubeRegistry(),
	}
	r := newRig(t, cfg)
	plugin := r.plugin(sim.Config{Resource: gpu, PreStart: true})
	r.untilConnected(gpu)
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-1", "gpu-5"))
	if _, err := r.Cordon(t.Context(), cordon.Cordon{Resource: gpu, ID: "gpu-2"}); err != nil {
		t.Fatal(err)
	}
	want := [3]int{8, 5, 1}
	r.until("two unhealthy devices", func(Inventory) bool { return r.numbers() == want })
	for i, restart := range []func(){
		func() { r.stop(); plugin.stop() }, // the agent stops first and has not seen the plugin go
		func() { r.stop() },
		func() { plugin.stop(); r.untilDisconnected(gpu); r.stop() },
	} {
		restart()
		cfg.Before.Lists, cfg.Registry = recallBook(t, path), metrics.NewKubeRegistry()
		// before anything runs: the node's first status comes from this
		before, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		reported := before.Inventory().Resources[gpu]
		nodes := fmt.Sprint(reported.Devices[0].Nodes, reported.Devices[7].Nodes)
		if reported.Capacity != 8 || reported.Allocatable != 5 || reported.Connected || nodes != "0 3" ||
			healthy(reported.Devices) != 0 {
			t.Errorf("restart %d: %+v, nodes %s", i, reported, nodes)
		}
		if want := i < 2; reported.Options.PreStart != want { // the last plugin's
			t.Errorf("restart %d: it wants to be called before starts: %t", i, reported.Options.PreStart)
		}
		for of, want := range map[string]float64{"capacity": 8, "allocatable": 5} {
			got, err := testutil.GetGaugeMetricValue(before.metrics.devices.WithLabelValues(gpu, of))
			if got != want || err != nil {
				t.Errorf("restart %d: metrics have %s %v (%v)", i, of, got, err)
			}
		}
		if got := before.Inventory().WantsReleased(gpu); got != ReleasedUnknown {
			t.Errorf("restart %d: whether it wants to be told of released devices is known: %d", i, got)
		}
		cfg.Registry = nil
		r = newRig(t, cfg)
		if got := r.numbers(); got != want {
			t.Errorf("restart %d: the numbers are %v, want %v", i, got, want)
		}
		if i == 1 {
			plugin = r.plugin(sim.Config{Resource: gpu, Devices: spread(t, 8, "0-3")})
			r.untilConnected(gpu)
			plugin.must(plugin.SetHealth(t.Context(), false, "gpu-1", "gpu-5"))
			r.until("two unhealthy devices", func(Inventory) bool { return r.numbers() == want })
		}
	}
}

// The graces count from when the plugin was last there, whatever the agent did since.
func TestGracesGoOnOverRestarts(t *testing.T) {
	devices := []*Device{
		{ID: "a", Healthy: true, Nodes: topology.NewNodeSet(0, 9)}, {ID: "b", Healthy: true}, {ID: "c"},
	}
	for away, want := range map[time.Duration]string{
		0:                "3 2",
		20 * time.Second: "3 2",
		time.Minute:      "3 0",
		6 * time.Minute:  "0 0",
		16 * time.Minute: "gone",
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s killed=%t", away, killed), func(t *testing.T) {
				path := filepath.Join(scratch.Dir(t), recall.FileName)
				there := time.Now().Add(-away)
				was := recall.Resource{Name: gpu, Gone: there, Devices: devices}
				if killed {
					was.Gone = time.Time{}
				}
				recallBook(t, path).Keep(t.Context(), []recall.Resource{was}, nil)
				if err := os.Chtimes(path, there, there); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					r := newRig(t, Config{Before: Before{Lists: recallBook(t, path)}})
					inv := r.Inventory()
					got := "gone"
					if one, known := inv.Resources[gpu]; known {
						got = fmt.Sprint(one.Capacity, one.Allocatable)
					} else if !slices.Equal(inv.Gone, []string{gpu}) {
						got = fmt.Sprintf("never there in run %d", i)
					}
					if got != want {
						t.Fatalf("the numbers are %s, want %s", got, want)
					}
					r.stop()
				}
			})
		}
	}
}

// A resource whose plugin stays away first has nothing, and then disappears. The first is looked at
// where it lasts: a busy machine may miss what lasts a moment.
func TestResourceGrace(t *testing.T) {
	stopped := func(resource time.Duration) *rig {
		r := newRig(t, Config{Graces: Graces{Capacity: 50 * time.Millisecond, Resource: resource}})
		plugin := r.plugin(sim.Config{Resource: gpu})
		r.untilConnected(gpu)
		plugin.stop()
		return r
	}
	stopped(time.Hour).until("the capacity to be 0", func(inv Inventory) bool {
		g, known := inv.Resources[gpu]
		return known && g.Capacity == 0 && strings.Contains(g.Problem, "plugin on")
	})
	stopped(100*time.Millisecond).until("the resource to be gone", func(inv Inventory) bool {
		return len(inv.Resources) == 0 && slices.Equal(inv.Gone, []string{gpu})
	})
}

// Lists that cannot be written are published nevertheless, and written with the next news.
func TestMemoryThatCannotBeWritten(t *testing.T) {
	root := filepath.Join(scratch.Dir(t), "root")
	path := filepath.Join(root, recall.FileName)
	r := newRig(t, Config{Before: Before{Lists: recallBook(t, path)}})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-1"))
	r.until("the news", func(inv Inventory) bool { return inv.Resources[gpu].Allocatable == 7 })
	if left := recallBook(t, path).Left(r.cfg.NodeIDs); len(left) != 1 || len(left[0].Devices) == 0 {
		t.Errorf("remembered are %+v", left)
	}
}
