package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

func TestConvert(t *testing.T) {
	m, err := topology.NewMachine(topology.Spec{
		CPUs: []topology.CPU{{ID: 0}},
		Nodes: []topology.Node{
			{ID: 0, MemoryBytes: 100, HugePages: []topology.HugePages{{PageBytes: 2 << 20}}},
			{ID: 1, MemoryBytes: 50}, {ID: 3},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 10}})
	if err != nil {
		t.Fatal(err)
	}
	group := topology.NewNodeSet(0, 1)
	held := []memory.Block{{Nodes: group, Resource: v1.ResourceMemory, Size: 120}}

	expected := NUMANodeMap{
		0: {NumberOfAssignments: 1, Cells: []int{0, 1}, MemoryMap: map[v1.ResourceName]*MemoryTable{
			"memory":        {TotalMemSize: 100, SystemReserved: 10, Allocatable: 90, Reserved: 90},
			"hugepages-2Mi": {},
		}},
		1: {NumberOfAssignments: 1, Cells: []int{0, 1}, MemoryMap: map[v1.ResourceName]*MemoryTable{
			"memory": {TotalMemSize: 50, Allocatable: 50, Reserved: 30, Free: 20},
		}},
		3: {Cells: []int{3}, MemoryMap: map[v1.ResourceName]*MemoryTable{"memory": {}}},
	}
	if diff := cmp.Diff(expected, Machine(p.Usage(held))); diff != "" {
		t.Errorf("machine, -want +got:\n%s", diff)
	}

	entry := Entry(held)
	listed := []Block{{NUMAAffinity: []int{0, 1}, Type: "memory", Size: 120}}
	if diff := cmp.Diff(listed, entry); diff != "" {
		t.Errorf("entry, -want +got:\n%s", diff)
	}
	same := cmp.Comparer(func(a, b topology.NodeSet) bool { return a == b })
	if diff := cmp.Diff(held, Blocks(entry), same); diff != "" {
		t.Errorf("blocks, -want +got:\n%s", diff)
	}
}
