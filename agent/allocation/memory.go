package allocation

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Blocks are the memory that all containers hold, in no order.
func (s State) Blocks() []memory.Block { return memoryOf(s.List()) }

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

// ownMemory provides memory and huge pages on certain nodes. Without a static policy nobody gets
// any, and who has some of an earlier policy keeps it.
type ownMemory struct {
	draft  *draft
	static *memory.Static // nil: there is no policy
	of     func(*v1.Container) map[v1.ResourceName]uint64
	// held is what others hold, and this pod's sidecars and regular containers, in sum: the blocks
	// of many containers cost no more than those of one.
	held []memory.Block
	// inits is what is left of the blocks of init containers that will have finished: those who
	// come after them take it over.
	inits []initBlocks
}

type initBlocks struct {
	container string
	blocks    []memory.Block
}

func newMemory(d *draft) provider {
	p := &ownMemory{draft: d, static: d.view.Memory, held: memory.Sum(d.view.Taken.Memory...)}
	if p.static == nil {
		p.of = func(*v1.Container) map[v1.ResourceName]uint64 { return nil }
	} else {
		p.of = memory.RequestsOf(d.pod)
	}
	return p
}

func (p *ownMemory) ask(c *v1.Container) (demand, error) {
	switch {
	case c != nil:
		return memoryDemand{p, c.Name, p.of(c)}, nil
	case p.static == nil:
		return memoryDemand{from: p}, nil
	}
	return memoryDemand{p, "", memory.PodRequests(p.draft.pod)}, nil
}

// take also lowers what init containers hold in the plan by what the container takes over.
func (p *ownMemory) take(container string, kind podspec.Kind) {
	placed := p.draft.plan.Pod.Containers
	chosen := placed[container].Memory
	if p.static == nil || len(chosen) == 0 {
		return
	}
	left := memory.Reuse(p.reusable(), chosen)
	for at := range p.inits {
		i := &p.inits[at]
		i.blocks, left = left[:len(i.blocks):len(i.blocks)], left[len(i.blocks):]
		c := placed[i.container]
		c.Memory = i.blocks
		placed[i.container] = c
	}
	if kind == podspec.Init {
		p.inits = append(p.inits, initBlocks{container, chosen})
	} else {
		p.held = memory.Sum(append(p.held, chosen...)...)
	}
}

func (p *ownMemory) reusable() (out []memory.Block) {
	for _, i := range p.inits {
		out = append(out, i.blocks...)
	}
	return out
}

// heldBeside is what is held if containers that start later keep what they have.
func (p *ownMemory) heldBeside(later []Container) []memory.Block {
	return slices.Concat(p.held, BlocksOf(later))
}

// BlocksOf lists the memory of the containers, in their order.
func BlocksOf(containers []Container) (out []memory.Block) {
	for _, c := range containers {
		out = append(out, c.Memory...)
	}
	return out
}

// memoryDemand is for bytes by resource.
type memoryDemand struct {
	from      *ownMemory
	container string // "": the pod
	bytes     map[v1.ResourceName]uint64
}

func (d memoryDemand) lacks(held Container) []string {
	if len(held.Memory) >= len(d.bytes) {
		return nil
	}
	return []string{fmt.Sprintf("memory of container %s on nodes of its own", d.container)}
}

// keep keeps blocks that are what is asked for and still have room. Of an init container's, others
// may have taken over a part; it comes back with the whole, of which they take theirs again.
func (d memoryDemand) keep(kind podspec.Kind, own Container, kept *Container) bool {
	if d.from.static == nil {
		kept.Memory = own.Memory
		return true
	}
	if len(own.Memory) != len(d.bytes) {
		return false
	}
	blocks := slices.Clone(own.Memory)
	for i, b := range blocks {
		size, ok := d.bytes[b.Resource]
		if !ok || b.Nodes != blocks[0].Nodes ||
			b.Size != size && (kind != podspec.Init || b.Size > size) {
			return false
		}
		blocks[i].Size = size
	}
	held := slices.Concat(d.from.held, memory.Reuse(d.from.reusable(), blocks))
	if !d.from.static.HasRoom(held, blocks) {
		return false
	}
	kept.Memory = blocks
	return true
}

func (d memoryDemand) offer(k fixed) offer {
	if len(d.bytes) == 0 {
		return offer{}
	}
	kept := BlocksOf(k.own)
	held, reusable, must := d.from.heldBeside(k.later), d.from.reusable(), topology.NodeSet{}
	if len(kept) > 0 { // it has to go with the rest, on the nodes where it is
		held, reusable = d.from.draft.view.Taken.Memory, kept
	}
	for _, b := range kept {
		must = must.Union(b.Nodes)
	}
	supply := d.from.static.Supply(held, reusable, d.bytes)
	anywhere := supply
	supply.Must = must
	if again := memory.Again(kept, d.bytes); again != nil {
		return offer{again, []topology.Supply{supply}}
	}
	hints := anywhere.Hints()
	if len(hints) == 0 {
		return offer{supplies: []topology.Supply{supply}} // choose says why
	}
	hints = slices.DeleteFunc(hints, func(h topology.Hint) bool {
		return !must.SubsetOf(h.Nodes)
	})
	return offerOf(supply, hints, slices.Sorted(maps.Keys(d.bytes))...)
}

func (d memoryDemand) choose(later []Container, hint topology.Hint, got *Container) (err error) {
	if len(d.bytes) == 0 || len(got.Memory) > 0 {
		return nil
	}
	got.Memory, err = d.from.static.Choose(d.from.heldBeside(later), d.from.reusable(), d.bytes,
		hint)
	return err
}
