package dra

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/internal/goldentest"
)

// stateOf returns the state of a simulated machine after orders.
func stateOf(t testing.TB, r *mock.Rig, orders ...string) gpu.State {
	t.Helper()
	for _, order := range orders {
		if err := r.Do(order); err != nil {
			t.Fatal(err)
		}
	}
	return read(t, r)
}

// read returns what a plugin finds first.
func read(t testing.TB, driver gpu.Driver) gpu.State {
	t.Helper()
	states := make(chan gpu.State, 1)
	plugin, err := gpu.New(gpu.Config{Driver: driver, Settings: gpu.Defaults(), Divides: true,
		Follow: func(s gpu.State) {
			select {
			case states <- s:
			default:
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := plugin.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	return <-states
}

func rigOf(t testing.TB, machine string) *mock.Rig {
	t.Helper()
	m, err := mock.Open(machine)
	if err != nil {
		t.Fatal(err)
	}
	return mock.New(m)
}

func options() Options { return Options{driver: gpu.DriverName} }

func claimsOf(root string, client kubernetes.Interface) dradriver.Config {
	return dradriver.Config{Driver: gpu.DriverName, Node: "node", Root: root, Client: client,
		Program: "numalet-gpu"}
}

// story renders slices as text, one line for each device.
func story(i inventory) string {
	var out strings.Builder
	for n, slice := range i.list().Resources("node").Pools["node"].Slices {
		fmt.Fprintf(&out, "slice %d: %d counter sets, %d devices\n", n, len(slice.SharedCounters),
			len(slice.Devices))
		for _, set := range slice.SharedCounters {
			fmt.Fprintf(&out, "  %s: %s\n", set.Name, counters(set.Counters))
		}
		for _, d := range slice.Devices {
			fmt.Fprintf(&out, "  %s\n", d.Name)
			for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
				fmt.Fprintf(&out, "    %s: %s\n", name, value(d.Attributes[name]))
			}
			for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
				fmt.Fprintf(&out, "    capacity %s: %s%s\n", name, new(d.Capacity[name].Value).String(),
					rule(d.Capacity[name].RequestPolicy))
			}
			for _, c := range d.ConsumesCounters {
				fmt.Fprintf(&out, "    consumes %s: %s\n", c.CounterSet, counters(c.Counters))
			}
			for _, taint := range d.Taints {
				fmt.Fprintf(&out, "    taint %s: %s\n", taint.Key, taint.Effect)
			}
			if d.AllowMultipleAllocations != nil {
				fmt.Fprintf(&out, "    shared: %t\n", *d.AllowMultipleAllocations)
			}
		}
	}
	return out.String()
}

func rule(p *resourcev1.CapacityRequestPolicy) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(" (%s unless asked for %s to %s, in steps of %s)", p.Default, p.ValidRange.Min,
		p.ValidRange.Max, p.ValidRange.Step)
}

func counters(all map[string]resourcev1.Counter) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, fmt.Sprintf("%s=%s", name, new(all[name].Value).String()))
	}
	return strings.Join(out, " ")
}

func value(a resourcev1.DeviceAttribute) string {
	switch {
	case a.IntValue != nil:
		return fmt.Sprint(*a.IntValue)
	case a.VersionValue != nil:
		return "v" + *a.VersionValue
	default:
		return *a.StringValue
	}
}

// The slices of every machine are as in testdata.
func TestSlices(t *testing.T) {
	type one struct {
		machine string
		orders  []string
		change  func(*Options)
	}
	tests := map[string]one{
		"dgxh100-static": {"dgxh100", []string{"mig 0 on", "divide 0 3g.40gb=1 1g.10gb=2"}, nil},
		"dgxh100-dynamic": {"dgxh100", []string{"mig 0 on", "mig 7 on", "lose 7"},
			func(o *Options) { o.Dynamic = true }},
		"dgx1-shared": {"dgx1", nil, func(o *Options) { o.Shares.Most = 4 }},
	}
	for _, name := range mock.Names() {
		tests[name] = one{name, nil, nil}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			if test.change != nil {
				test.change(&o)
			}
			got := story(inventoryOf(stateOf(t, rigOf(t, test.machine), test.orders...), o, time.Time{}))
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got)
		})
	}
}

// Each slice of the largest machines keeps the limits of the API, and all names are valid.
func TestLimits(t *testing.T) {
	for _, machine := range []string{"dgxh100", "dgxb200", "dgx2", "sixty-four"} {
		var s gpu.State
		if machine == "sixty-four" {
			for len(s.GPUs) < 64 {
				for _, g := range stateOf(t, rigOf(t, "dgxh100")).GPUs {
					g.Index, g.Minor = len(s.GPUs), len(s.GPUs)
					g.UUID, g.MIG = fmt.Sprintf("GPU-%d", g.Index), true
					s.GPUs = append(s.GPUs, g)
				}
			}
		} else {
			r := rigOf(t, machine)
			s = stateOf(t, r)
			for i := range s.GPUs {
				s.GPUs[i].MIG = true
			}
		}
		o := options()
		o.Dynamic, o.Shares.Most = true, 10
		i := inventoryOf(s, o, time.Now())
		for n := range i.devices { // everything that can go wrong does
			for _, r := range []gpu.Reason{gpu.DriverHangs, gpu.FellOffBus, gpu.CriticalXID,
				gpu.MemoryErrors, gpu.RemapPending, gpu.RemapFailed, gpu.NVLinkDown, gpu.ActionRequired} {
				i.devices[n].troubles = append(i.devices[n].troubles, gpu.Trouble{Reason: r})
			}
		}
		devices, sets := 0, 0
		for n, slice := range i.list().Resources("node").Pools["node"].Slices {
			devices, sets = devices+len(slice.Devices), sets+len(slice.SharedCounters)
			if len(slice.Devices) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures ||
				len(slice.SharedCounters) > resourcev1.ResourceSliceMaxCounterSets ||
				len(slice.Devices) > 0 && len(slice.SharedCounters) > 0 {
				t.Errorf("%s: slice %d has %d devices and %d counter sets", machine, n,
					len(slice.Devices), len(slice.SharedCounters))
			}
			for _, set := range slice.SharedCounters {
				if len(set.Counters) > resourcev1.ResourceSliceMaxCountersPerCounterSet {
					t.Errorf("%s: %s has %d counters", machine, set.Name, len(set.Counters))
				}
			}
			for _, d := range slice.Devices {
				checkDevice(t, machine, d)
			}
		}
		if devices != len(i.devices) || devices < len(s.GPUs)*len(s.GPUs[0].Traits.Partitions) {
			t.Errorf("%s: %d of %d devices are published, and %d counter sets", machine, devices,
				len(i.devices), sets)
		}
	}
}

func checkDevice(t *testing.T, machine string, d resourcev1.Device) {
	t.Helper()
	if wrong := validation.IsDNS1123Label(d.Name); wrong != nil {
		t.Errorf("%s: device %q: %s", machine, d.Name, wrong)
	}
	if n := len(d.Attributes) + len(d.Capacity); n >
		resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		t.Errorf("%s: %s has %d attributes and capacities", machine, d.Name, n)
	}
	for name, a := range d.Attributes {
		if a.VersionValue != nil && strings.Count(*a.VersionValue, ".") != 2 {
			t.Errorf("%s: %s is %q", machine, name, *a.VersionValue)
		}
	}
	for _, taint := range d.Taints {
		if wrong := validation.IsQualifiedName(taint.Key); wrong != nil {
			t.Errorf("%s: taint %q: %s", machine, taint.Key, wrong)
		}
	}
}

// A driver that is there and has no GPU publishes an empty pool, not none.
func TestNoDevices(t *testing.T) {
	got := inventoryOf(gpu.State{}, options(), time.Now()).list().Resources("node")
	if slices := got.Pools["node"].Slices; len(slices) != 1 || len(slices[0].Devices) > 0 {
		t.Errorf("%+v", got)
	}
}
