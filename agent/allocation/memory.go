package allocation

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// blocks are those of all containers, in no order.
func (p Pod) blocks() (out []memory.Block) {
	for _, c := range p.Containers {
		out = append(out, c.Memory...)
	}
	return out
}

// Blocks are the memory that all containers hold, in no order.
func (s State) Blocks() (out []memory.Block) {
	for _, p := range s.Pods {
		out = append(out, p.blocks()...)
	}
	return out
}

// memoryOf has the blocks of all pods, in no order. A pod may be listed as it is recorded and as it
// is reserved: what both have of a container counts once.
func memoryOf(pods []Pod) (out []memory.Block) {
	type key struct {
		uid       types.UID
		container string
	}
	seen := map[key][]memory.Block{}
	for _, p := range pods {
		for name, c := range p.Containers {
			if at := (key{p.UID, name}); len(c.Memory) > 0 && !slices.Equal(seen[at], c.Memory) {
				seen[at] = c.Memory
				out = append(out, c.Memory...)
			}
		}
	}
	return out
}

// ownMemory is the memory side of a plan in the making.
type ownMemory struct {
	// held is what others hold, and this pod's sidecars and regular containers.
	held []memory.Block
	// inits is what is left of the blocks of init containers that will have finished: those who
	// come after them take it over.
	inits []initBlocks
}

type initBlocks struct {
	container string
	blocks    []memory.Block
}

func (m *ownMemory) reusable() (out []memory.Block) {
	for _, i := range m.inits {
		out = append(out, i.blocks...)
	}
	return out
}

// take accounts for the blocks of one container, and writes what is left of init containers to out.
func (m *ownMemory) take(container string, kind podspec.Kind, chosen []memory.Block,
	out map[string]Container) {
	if len(chosen) == 0 {
		return
	}
	left := memory.Reuse(m.reusable(), chosen)
	for at := range m.inits {
		i := &m.inits[at]
		i.blocks, left = left[:len(i.blocks):len(i.blocks)], left[len(i.blocks):]
		c := out[i.container]
		c.Memory = i.blocks
		out[i.container] = c
	}
	if kind == podspec.Init {
		m.inits = append(m.inits, initBlocks{container, chosen})
	} else {
		m.held = append(m.held, chosen...)
	}
}

// memoryHints are the offers of the memory manager.
func (w *work) memoryHints(req request) []topology.ResourceHints {
	if again := memory.Again(req.kept.Memory, req.memory); again != nil {
		return again
	}
	held, reusable, must := w.memoryFor(req)
	hints := w.view.Memory.Hints(held, reusable, req.memory)
	for i := range hints {
		hints[i].Hints = slices.DeleteFunc(hints[i].Hints, func(h topology.Hint) bool {
			return !must.IsEmpty() && h.Nodes.Intersect(must) != must
		})
	}
	return hints
}

// memoryFor is what is held and what may be reused for a request: what it keeps, if anything. That
// must be on the nodes of the rest.
func (w *work) memoryFor(req request) (held, reusable []memory.Block, must topology.NodeSet) {
	if len(req.kept.Memory) == 0 {
		return w.memory.held, w.memory.reusable(), must
	}
	for _, b := range req.kept.Memory {
		must = must.Union(b.Nodes)
	}
	return w.view.Taken.Memory, req.kept.Memory, must
}

// keptMemory is what a container goes on with of the blocks that it has; false if they are not
// what it requests, or have no room any more. Of an init container's, others may have taken over a
// part; it comes back with the whole, of which they take theirs again.
func (w *work) keptMemory(kind podspec.Kind, own []memory.Block,
	requests map[v1.ResourceName]uint64) ([]memory.Block, bool) {
	if w.view.Memory == nil {
		return own, true // of an earlier policy
	}
	if len(own) != len(requests) {
		return nil, false
	}
	kept := slices.Clone(own)
	for i, b := range own {
		size, ok := requests[b.Resource]
		if !ok || b.Nodes != own[0].Nodes ||
			b.Size != size && (kind != podspec.Init || b.Size > size) {
			return nil, false
		}
		kept[i].Size = size
	}
	held := slices.Concat(w.memory.held, memory.Reuse(w.memory.reusable(), kept))
	return kept, w.view.Memory.HasRoom(held, kept)
}
