package devicemanager

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// refusals records the lists refused for their length.
type refusals struct {
	mu       sync.Mutex
	reported []RefusedList
}

func (r *refusals) note(l RefusedList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported = append(r.reported, l)
}

func (r *refusals) all() []RefusedList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reported
}

// newShortRig is a rig that reads lists of about ten devices.
func newShortRig(t *testing.T) (*rig, *refusals) {
	t.Helper()
	heard := &refusals{}
	r := newRig(t, Config{
		MaxListBytes: 300, Refused: heard.note, Registry: metrics.NewKubeRegistry(),
	})
	return r, heard
}

func (r *rig) refused() int {
	r.t.Helper()
	n, err := testutil.GetCounterMetricValue(r.metrics.refused.WithLabelValues(gpu))
	if err != nil {
		r.t.Fatal(err)
	}
	return int(n)
}

func moreDevices(n int) (devices []sim.Device, ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("more-%d", i))
		devices = append(devices, sim.Device{ID: ids[i], Healthy: true})
	}
	return devices, ids
}

func TestListTooLong(t *testing.T) {
	r, heard := newShortRig(t)
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	more, ids := moreDevices(40)
	const complaint = "plugin on example.com_gpu.sock: its list of devices of example.com/gpu " +
		"has more than 300 bytes and was not read; the 8 devices of its last list count on, with " +
		"the health they had: let it list fewer devices, or shorter ids"
	check := func(usable, times int) {
		t.Helper()
		res := r.until("the complaint", func(inv Inventory) bool {
			return inv.Resources[gpu].Complaint != ""
		}).Resources[gpu]
		if !res.Connected || healthy(res.Devices) != usable || res.Allocatable != usable ||
			res.Complaint != complaint {
			t.Errorf("the resource is %+v", res)
		}
		if reported := heard.all(); len(reported) != times || reported[times-1].String() != complaint {
			t.Errorf("told %v", reported)
		}
	}
	began := time.Now()
	plugin.must(plugin.Add(t.Context(), more...))
	check(8, 1)
	if err := r.caller(sim.Allocate, gpu); err != nil {
		t.Error(err)
	}
	eventually(t, "the list to be asked for again", func() bool { return r.refused() == 2 })
	if took := time.Since(began); took < firstPause {
		t.Errorf("it was asked for again after %s", took)
	}
	check(8, 1)
	plugin.must(plugin.Remove(t.Context(), ids...))
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-3"))
	r.until("a list that is read", func(inv Inventory) bool {
		res := inv.Resources[gpu]
		return res.Complaint == "" && res.Connected && !res.Devices[3].Healthy
	})
	plugin.must(plugin.Add(t.Context(), more...))
	check(7, 2)
}

func TestFirstListTooLong(t *testing.T) {
	r, heard := newShortRig(t)
	plugin := r.plugin(sim.Config{Resource: gpu, Devices: spread(t, 60, "0")})
	res := r.until("the problem", func(inv Inventory) bool {
		return strings.Contains(inv.Resources[gpu].Problem, "more than 300 bytes")
	}).Resources[gpu]
	if res.Connected || len(res.Devices) > 0 || len(heard.all()) != 1 ||
		!strings.Contains(res.Problem, "it has listed nothing that could be kept") {
		t.Errorf("the resource is %+v, told %v", res, heard.all())
	}
	plugin.must(plugin.Remove(t.Context(), idsFrom(10, 60)...))
	if res := r.untilConnected(gpu); len(res.Devices) != 10 {
		t.Errorf("the resource is %+v", res)
	}
}

func idsFrom(from, to int) (ids []string) {
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprintf("gpu-%d", i))
	}
	return ids
}

// A plugin that ends after a refused list counts as away like any other.
func TestPluginEndsAfterARefusedList(t *testing.T) {
	r, _ := newShortRig(t)
	plugin := startPlugin(t, sim.Config{Resource: gpu, Dir: r.dir}, sim.ErrCrashed)
	r.untilConnected(gpu)
	more, _ := moreDevices(40)
	plugin.must(plugin.Add(t.Context(), more...))
	r.until("the complaint", func(inv Inventory) bool { return inv.Resources[gpu].Complaint != "" })
	plugin.must(plugin.Crash(t.Context()))
	res := r.untilDisconnected(gpu)
	if len(res.Devices) != 8 || healthy(res.Devices) > 0 || res.Complaint != "" {
		t.Errorf("the resource is %+v", res)
	}
}

// The pauses between tries double up to a bound, start anew after a session that lasted, and end
// with the grace.
func TestTrial(t *testing.T) {
	start := time.Unix(0, 0)
	const grace = time.Minute
	tries := trial{until: start.Add(grace)}
	now := start
	step := func(lasted, want time.Duration, wantAgain bool) {
		t.Helper()
		now = now.Add(lasted)
		pause, again := tries.next(lasted, now, grace, 0)
		if pause != want || again != wantAgain {
			t.Errorf("at %s: %s, %t; want %s, %t", now.Sub(start), pause, again, want, wantAgain)
		}
		now = now.Add(pause)
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		step(0, pause*time.Second, true)
	}
	step(time.Hour, time.Second, true) // at 45 s
	for _, pause := range []time.Duration{2, 4, 8, 10, 10, 10, 10} {
		step(0, pause*time.Second, true)
	}
	step(0, 10*time.Second, false)
}
