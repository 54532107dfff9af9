package rig

import (
	"math"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
	"github.com/numalet/numalet/topology/memory"
)

// Fragmentation of memory and huge pages, step by step. Node 0 has 10 GiB of memory for pods and 4
// GiB of 2 MiB pages, node 1 has 12 and 2; node 2 has only CPUs.
func TestFragmentationOfMemory(t *testing.T) {
	m, err := discover.ParseYAML(strings.NewReader(`
name: uneven
nodes:
- {id: 0, cpus: "0-3", memory: 16Gi, hugepages: {2Mi: 2048}}
- {id: 1, cpus: "4-7", memory: 14Gi, hugepages: {2Mi: 1024}}
- {id: 2, cpus: "8-11"}
`))
	if err != nil {
		t.Fatal(err)
	}
	static, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 2 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	pages := v1.ResourceName("hugepages-2Mi")
	supply := supply{place: map[topology.NodeID]int{0: 0, 1: 1, 2: 2}}
	supply.stock(m, static, []string{"cpu", "memory", "example.com/gpu", string(pages)})
	block := func(resource v1.ResourceName, gib uint64, nodes ...topology.NodeID) allocation.Pod {
		return allocation.Pod{Containers: map[string]allocation.Container{"a": {
			allocation.Memory{{
				Nodes: topology.NewNodeSet(nodes...), Resource: resource, Size: gib << 30,
			}},
		}}}
	}
	for _, step := range []struct {
		what          string
		pod           allocation.Pod
		sign          int
		memory, pages float64
	}{
		{"nobody has anything", block("memory", 0, 0), -1, 0, 0},
		{"8 of 12 on node 1", block("memory", 8, 1), -1, 1 - 10.0/12, 0},
		{"all pages of node 0", block(pages, 4, 0), -1, 1 - 10.0/12, 0},
		{"10 of 10 on node 0", block("memory", 10, 0), -1, 0, 0},
		{"back", block("memory", 10, 0), 1, 1 - 10.0/12, 0},
		{"back", block(pages, 4, 0), 1, 1 - 10.0/12, 0},
		{"back", block("memory", 8, 1), 1, 0, 0},
		// A node in use together with another one serves no request for a single node.
		{"14 on both nodes", block("memory", 14, 0, 1), -1, 1, 1},
		{"back", block("memory", 14, 0, 1), 1, 0, 0},
		// Node 2 has no memory, so the block is on node 0.
		{"4 on nodes 0 and 2", block("memory", 4, 0, 2), -1, 0, 0},
		{"all of node 1 beside it", block("memory", 12, 1), -1, 0, 0},
	} {
		supply.move(step.pod, step.sign)
		for i, want := range []float64{step.memory, step.pages} {
			got := supply.memory[i].fragmentation(supply.groups)
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: fragmentation of %s %v, want %v",
					step.what, supply.memory[i].resource, got, want)
			}
		}
	}
	if len(supply.memory) != 2 {
		t.Errorf("%d kinds of memory", len(supply.memory))
	}
}
