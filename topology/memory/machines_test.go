package memory_test

import (
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/topologytest"
)

const (
	mib   = 1 << 20
	gib   = 1 << 30
	pages = v1.ResourceName("hugepages-2Mi")
	huge  = v1.ResourceName("hugepages-1Gi")
)

type wants = map[v1.ResourceName]uint64

// shape gives the GiB of each node and how many of them are in pages of 2 MiB. A node of 0 has no
// memory; only node 0 has a CPU.
type shape [][2]uint64

func (s shape) machine(t topologytest.Failer) *topology.Machine {
	t.Helper()
	spec := topology.Spec{CPUs: []topology.CPU{{ID: 0}}}
	for i, size := range s {
		n := topology.Node{ID: topology.NodeID(i), MemoryBytes: size[0] * gib}
		if size[0] > 0 {
			n.HugePages = []topology.HugePages{{PageBytes: 2 * mib, Count: size[1] * 512}}
		}
		spec.Nodes = append(spec.Nodes, n)
	}
	return topologytest.Of(t, spec)
}

// static reserves 1 GiB on each node that has memory.
func (s shape) static(t topologytest.Failer) *memory.Static {
	t.Helper()
	reserved := memory.Amounts{}
	for i, size := range s {
		if size[0] > 0 {
			reserved[topology.NodeID(i)] = wants{v1.ResourceMemory: gib}
		}
	}
	p, err := memory.New(s.machine(t), reserved)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func nodes(ids ...topology.NodeID) topology.NodeSet { return topology.NewNodeSet(ids...) }

func block(size uint64, ids ...topology.NodeID) memory.Block {
	return memory.Block{Nodes: nodes(ids...), Resource: v1.ResourceMemory, Size: size * gib}
}

func pageBlock(size uint64, ids ...topology.NodeID) memory.Block {
	return memory.Block{Nodes: nodes(ids...), Resource: pages, Size: size * gib}
}

func want(size uint64) wants { return wants{v1.ResourceMemory: size * gib} }

func only(ids ...topology.NodeID) topology.Hint {
	return topology.Hint{Nodes: nodes(ids...)}
}

func preferred(ids ...topology.NodeID) topology.Hint {
	return topology.Hint{Nodes: nodes(ids...), Preferred: true}
}

// someShape draws a machine of up to most nodes, some without memory.
func someShape(t *rapid.T, most int) shape {
	n := rapid.IntRange(1, most).Draw(t, "nodes")
	s := make(shape, n)
	for i := range s {
		total := rapid.SampledFrom([]uint64{0, 3, 5, 5, 9}).Draw(t, "gib")
		if i == 0 && total == 0 {
			total = 5
		}
		s[i][0] = total
		if total > 0 {
			s[i][1] = rapid.Uint64Range(0, total-1).Draw(t, "in pages")
		}
	}
	return s
}

func someWants(t *rapid.T) wants {
	w := want(rapid.Uint64Range(1, 12).Draw(t, "memory"))
	if rapid.Bool().Draw(t, "pages too") {
		w[pages] = rapid.Uint64Range(1, 8).Draw(t, "pages") * gib
	}
	return w
}

// someHeld draws blocks by placing requests one after the other.
func someHeld(t *rapid.T, p *memory.Static, most int) (held []memory.Block) {
	for range rapid.IntRange(0, most).Draw(t, "held") {
		w := someWants(t)
		hint := topology.Hint{Any: true}
		if offers := hintsOf(p, held, nil, w); len(offers) > 0 && rapid.Bool().Draw(t, "by hint") {
			hint = rapid.SampledFrom(offers[0].Hints).Draw(t, "hint")
		}
		blocks, err := p.Choose(held, nil, w, hint)
		if err == nil {
			held = append(held, blocks...)
		}
	}
	return held
}
