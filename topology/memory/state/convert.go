package state

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// Machine returns the nodes as the file shows them. A kubelet that reads the file compares them
// with what it derives from its own configuration and the entries.
func Machine(usage []memory.Usage) NUMANodeMap {
	out := NUMANodeMap{}
	for _, u := range usage {
		n := &NUMANodeState{
			NumberOfAssignments: u.Blocks, Cells: ints(u.Group),
			MemoryMap: map[v1.ResourceName]*MemoryTable{},
		}
		for name, total := range u.Total {
			n.MemoryMap[name] = &MemoryTable{
				TotalMemSize: total, SystemReserved: u.Reserved[name],
				Allocatable: u.Allocatable[name], Free: u.Free[name],
				Reserved: u.Allocatable[name] - u.Free[name],
			}
		}
		out[int(u.Node)] = n
	}
	return out
}

// Entry returns the blocks of one container as the file lists them.
func Entry(blocks []memory.Block) []Block {
	out := []Block{}
	for _, b := range blocks {
		out = append(out, Block{NUMAAffinity: ints(b.Nodes), Type: b.Resource, Size: b.Size})
	}
	return out
}

// Blocks is the inverse of Entry for sets of nodes without duplicates and negative ids.
func Blocks(entry []Block) []memory.Block {
	var out []memory.Block
	for _, b := range entry {
		ids := make([]topology.NodeID, len(b.NUMAAffinity))
		for i, id := range b.NUMAAffinity {
			ids[i] = topology.NodeID(id)
		}
		out = append(out, memory.Block{
			Nodes: topology.NewNodeSet(ids...), Resource: b.Type, Size: b.Size,
		})
	}
	return out
}

func ints(nodes topology.NodeSet) []int {
	out := []int{}
	for _, id := range nodes.IDs() {
		out = append(out, int(id))
	}
	return out
}
