package metrics

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// Memory and devices count by their nodes. What containers of a pod hold one after the other counts
// once, and series that are no longer held disappear.
func TestPlacedPerNode(t *testing.T) {
	m, registry := fresh(t)
	zero, both := topology.NewNodeSet(0), topology.NewNodeSet(0, 1)
	gpus := func(ids ...string) []allocation.DeviceSet {
		d := allocation.DeviceSet{Resource: "example.com/gpu", IDs: ids}
		for range ids {
			d.Nodes = append(d.Nodes, zero)
		}
		return []allocation.DeviceSet{d}
	}
	first := allocation.Pod{UID: "a", Containers: map[string]allocation.Container{
		"init": {allocation.Devices(gpus("gpu-0"))},
		"main": {
			allocation.Memory{
				{Nodes: both, Resource: "hugepages-2Mi", Size: 8}, {Nodes: zero, Resource: "memory", Size: 5},
			},
			allocation.Devices(gpus("gpu-0", "gpu-1")),
		},
	}}
	second := allocation.Pod{UID: "b", Containers: map[string]allocation.Container{"main": {
		allocation.Memory{{Nodes: zero, Resource: "memory", Size: 2}},
		allocation.Devices{{Resource: "example.com/nic", IDs: []string{"n0"}}},
	}}}
	const amount, count = "numalet_memory_allocation_per_numa_bytes", "numalet_device_allocation_per_numa"
	const nowhere = count + `{numa_nodes="",resource="example.com/nic"} 1` + "\n"
	expect := func(name, want string) {
		t.Helper()
		text := "# TYPE " + name + " gauge\n" + want
		if err := testutil.GatherAndCompare(registry, strings.NewReader(help(name)+text), name); err != nil {
			t.Error(err)
		}
	}
	m.Placed([]allocation.Pod{first, second})
	expect(amount, amount+`{numa_nodes="0",resource="memory"} 7`+"\n"+
		amount+`{numa_nodes="0-1",resource="hugepages-2Mi"} 8`+"\n")
	expect(count, nowhere+count+`{numa_nodes="0",resource="example.com/gpu"} 2`+"\n")
	m.Placed([]allocation.Pod{second})
	expect(amount, amount+`{numa_nodes="0",resource="memory"} 2`+"\n")
	expect(count, nowhere)
}

func help(name string) string {
	text := "Memory and huge pages that containers were given on NUMA nodes, by resource and nodes."
	if strings.Contains(name, "device") {
		text = "Devices that containers have, by resource and the NUMA nodes that they are on; without " +
			"a node those that are on none in particular."
	}
	return "# HELP " + name + " [ALPHA] " + text + "\n"
}
