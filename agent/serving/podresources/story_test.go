package podresources

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// TestStory: the messages of a client with and of one without a filter.
func TestStory(t *testing.T) {
	now := snapshot()
	f := newFeed(func() Snapshot { return now })
	f.instance = "run"
	var all, web []string
	readers := []*reader{
		{feed: f, filter: filter{allocatable: true}, send: into(&all)},
		{feed: f, filter: filter{namespace: "a"}, send: into(&web)},
	}
	step := func() {
		t.Helper()
		f.refresh()
		for _, r := range readers {
			for c, _, _ := f.next(r.at.Load()); c != nil; c, _, _ = f.next(r.at.Load()) {
				if err := r.step(c); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, r := range readers {
		if err := r.tell(1, r.begin(&watchv1.WatchRequest{})); err != nil {
			t.Fatal(err)
		}
	}
	now.Pods = now.Pods[1:] // web stays
	gpus := now.Inventory.Resources["example.com/gpu"]
	gpus.Devices = []*devicemanager.Device{gpus.Devices[1], {ID: "gpu-2", Healthy: true}}
	now.Inventory.Resources = map[string]devicemanager.Resource{"example.com/gpu": gpus}
	now.Inventory.Version++
	step()
	now.Pods, now.CPUs = nil, cpuset.New(1)
	step()

	if got, want := strings.Join(all, "\n"), strings.Join([]string{
		`run 1 partial snapshot:{}`,
		`run 1 partial pod:{uid:"2" resources:{name:"web" namespace:"a" ` +
			`containers:{name:"nginx"}}}`,
		`run 1 partial pod:{uid:"1" resources:{name:"train" namespace:"default" ` +
			`containers:{name:"side"} containers:{name:"main" ` +
			`devices:{resource_name:"example.com/away" device_ids:"x"} ` +
			`devices:{resource_name:"example.com/gpu" device_ids:"gpu-0" topology:{nodes:{}}} ` +
			`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{}}} ` +
			`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1" ` +
			`topology:{nodes:{ID:1}}} cpu_ids:2 cpu_ids:3}}}`,
		`run 1 partial node:{cpu_ids:1 cpu_ids:2 cpu_ids:3}`,
		`run 1 partial devices:{resource_name:"example.com/gpu" ` +
			`put:{resource_name:"example.com/gpu" device_ids:"gpu-0" topology:{nodes:{}}} ` +
			`put:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{}}} ` +
			`put:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{ID:1}}}}`,
		`run 1 bookmark:{}`,
		`run 2 partial deleted_pod:{uid:"1" namespace:"default" name:"train"}`,
		`run 2 partial devices:{resource_name:"example.com/gpu" deleted_ids:"gpu-0"}`,
		`run 2 devices:{resource_name:"example.com/gpu" ` +
			`put:{resource_name:"example.com/gpu" device_ids:"gpu-2"}}`,
		`run 3 partial deleted_pod:{uid:"2" namespace:"a" name:"web"}`,
		`run 3 node:{cpu_ids:1}`,
	}, "\n"); got != want {
		t.Errorf("everything:\n%s\nwant\n%s", got, want)
	}
	if got, want := strings.Join(web, "\n"), strings.Join([]string{
		`run 1 partial snapshot:{}`,
		`run 1 partial pod:{uid:"2" resources:{name:"web" namespace:"a" ` +
			`containers:{name:"nginx"}}}`,
		`run 1 bookmark:{}`,
		`run 3 deleted_pod:{uid:"2" namespace:"a" name:"web"}`,
	}, "\n"); got != want {
		t.Errorf("namespace a:\n%s\nwant\n%s", got, want)
	}
}

// into returns a function that appends messages as lines.
func into(lines *[]string) func(*watchv1.WatchResponse) error {
	return func(r *watchv1.WatchResponse) error {
		head := fmt.Sprintf("%s %d ", r.Instance, r.Generation)
		if r.Partial {
			head += "partial "
		}
		event := proto.CloneOf(r)
		event.Instance, event.Generation, event.Partial = "", 0, false
		*lines = append(*lines, head+compact(event))
		return nil
	}
}

// TestManyDevices: after a change of 100,000 devices readers get the state, in messages that every
// client accepts. A change of one device is one small message, and comparing keeps no memory.
func TestManyDevices(t *testing.T) {
	const count, most = 100_000, 4 << 20
	devices := make([]*devicemanager.Device, count)
	for i := range devices {
		devices[i] = &devicemanager.Device{
			ID: fmt.Sprintf("device-%d", i), Healthy: true, Nodes: topology.NewNodeSet(0, 1),
		}
	}
	now := Snapshot{}
	offer := func(devices []*devicemanager.Device) {
		now.Inventory = devicemanager.Inventory{
			Version: now.Inventory.Version + 1, Resources: map[string]devicemanager.Resource{
				"x/many": {Name: "x/many", Connected: true, Devices: devices},
			},
		}
	}
	f := newFeed(func() Snapshot { return now })
	sizes, snapshots := []int{}, 0
	var m watchv1.Mirror
	r := &reader{feed: f, filter: filter{allocatable: true},
		send: func(r *watchv1.WatchResponse) error {
			if r.GetSnapshot() != nil {
				snapshots++
			}
			sizes = append(sizes, proto.Size(r))
			m.Apply(r)
			return nil
		}}
	if err := r.tell(1, r.begin(&watchv1.WatchRequest{})); err != nil {
		t.Fatal(err)
	}
	follow := func() {
		t.Helper()
		sizes = nil
		f.refresh()
		c, _, _ := f.next(r.at.Load())
		if err := r.step(c); err != nil {
			t.Fatal(err)
		}
	}
	offer(devices)
	follow()
	if got := len(m.Allocatable().Devices); got != 2*count || snapshots != 2 || f.past.weight > 1 {
		t.Errorf("%d entries after %d snapshots, %d kept", got, snapshots, f.past.weight)
	}
	if got := slices.Max(sizes); got > most {
		t.Errorf("a message of %d bytes", got)
	}
	sick := slices.Clone(devices)
	sick[777] = &devicemanager.Device{ID: devices[777].ID}
	offer(sick)
	follow()
	if len(sizes) != 1 || len(m.Allocatable().Devices) != 2*count-2 {
		t.Errorf("one device: messages of %v bytes, %d entries", sizes,
			len(m.Allocatable().Devices))
	}
}
