package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Memory is a container's memory and huge pages on certain nodes: one block per resource, ordered
// by resource name. The blocks of an init container lack what later containers have taken over.
type Memory []memory.Block

var memoryKind = kind{
	name: "memory", since: 2, none: memoryCounts(nil), provide: newMemory,
	sum: func(pods []Pod) total { return Memory(append(memoryOf(pods), claimedMemory(pods)...)) },
	size: func(pod *v1.Pod, rules topology.Rules) func(*v1.Container) (items, bytes uint64) {
		of := memory.RequestsOf(pod, rules)
		return func(c *v1.Container) (items, bytes uint64) { return 0, of(c)[v1.ResourceMemory] }
	},
	decode: func(raw []byte) (Holding, error) {
		var records []blockRecord
		if err := json.Unmarshal(raw, &records); err != nil {
			return nil, err
		}
		var out Memory
		for _, r := range records {
			nodes, err := topology.ParseNodeSet(r.Nodes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Resource, err)
			}
			out = append(out, memory.Block{Nodes: nodes, Resource: r.Resource, Size: r.Bytes})
		}
		return out, nil
	},
}

// blockRecord is the written form of a block.
type blockRecord struct {
	Nodes    string          `json:"nodes"`
	Resource v1.ResourceName `json:"resource"`
	Bytes    uint64          `json:"bytes"`
}

// Kind implements Holding.
func (Memory) Kind() string { return memoryKind.name }

func (m Memory) empty() bool { return len(m) == 0 }

func (m Memory) parts() (out []string) {
	for _, b := range m {
		out = append(out, fmt.Sprintf("%s on node %s", b.Resource, b.Nodes))
	}
	return out
}

// MarshalJSON writes a list of blocks.
func (m Memory) MarshalJSON() ([]byte, error) {
	out := make([]blockRecord, len(m))
	for i, b := range m {
		out[i] = blockRecord{b.Nodes.String(), b.Resource, b.Size}
	}
	return json.Marshal(out)
}

func (m Memory) equal(o Holdings) bool { return slices.Equal(m, o.Memory()) }

func (m Memory) overlaps(o Holdings) bool {
	others := o.Memory()
	return slices.ContainsFunc(m, func(a memory.Block) bool {
		return slices.ContainsFunc(others, func(b memory.Block) bool {
			return a.Resource == b.Resource && !a.Nodes.Intersect(b.Nodes).IsEmpty()
		})
	})
}

// Memory returns the container's memory on certain nodes.
func (c Container) Memory() []memory.Block { return find(c, Memory(nil)) }

// Memory returns the blocks, in no order.
func (t Holdings) Memory() []memory.Block { return find(t, Memory(nil)) }

// Blocks returns the memory of all containers, in no order.
func (s State) Blocks() []memory.Block { return memoryOf(s.List()) }

// memoryOf returns the blocks of all pods, in no order. A pod may be listed twice, as recorded and
// as reserved: blocks of a container that are the same in both count once.
func memoryOf(pods []Pod) (out []memory.Block) {
	type key struct {
		uid       types.UID
		container string
	}
	seen := map[key][]memory.Block{}
	for _, p := range pods {
		pooled := len(p.Pool().Memory()) > 0
		for name, c := range p.Containers {
			if pooled && name != WholePod {
				continue // it holds a part of the pool
			}
			blocks := c.Memory()
			if at := (key{p.UID, name}); len(blocks) > 0 && !slices.Equal(seen[at], blocks) {
				seen[at] = blocks
				out = append(out, blocks...)
			}
		}
	}
	return out
}

// memoryCounts sums up the blocks of one resource on the same nodes.
type memoryCounts map[memoryKey]memorySum

type memoryKey struct {
	nodes    topology.NodeSet
	resource v1.ResourceName
}

type memorySum struct {
	blocks int
	bytes  uint64
}

func (n memoryCounts) change(had, has Holdings) counts {
	out := make(memoryCounts, len(n)+1)
	maps.Copy(out, n)
	for _, b := range has.Memory() {
		key := memoryKey{b.Nodes, b.Resource}
		m := out[key]
		out[key] = memorySum{m.blocks + 1, m.bytes + b.Size}
	}
	for _, b := range had.Memory() {
		key := memoryKey{b.Nodes, b.Resource}
		m := out[key]
		if out[key] = (memorySum{m.blocks - 1, m.bytes - b.Size}); m.blocks == 1 {
			delete(out, key)
		}
	}
	return out
}

// taken merges blocks on the same nodes.
func (n memoryCounts) taken([]string) total {
	out := make(Memory, 0, len(n))
	for key, m := range n {
		out = append(out, memory.Block{Nodes: key.nodes, Resource: key.resource, Size: m.bytes})
	}
	return out
}

func (memoryCounts) lasting(sum, Holdings, string) int { return 0 } // bytes are not counted

func (memoryCounts) conflict(Holdings) string { return "" } // pods can share nodes

// ownMemory hands out memory and huge pages on certain nodes. Without a static policy it hands out
// none, and containers keep what they have from an earlier policy.
type ownMemory struct {
	draft  *draft
	static *memory.Static // nil: there is no policy
	of     func(*v1.Container) map[v1.ResourceName]uint64
	// others are the blocks of other pods and of this pod's claims. held adds those of this pod's
	// sidecars and regular containers.
	others, held []memory.Block
	// inits are the blocks of init containers that will have ended, without those that a later
	// container has taken over.
	inits []initBlocks
	// whole are the blocks of init containers that were placed last and were lent nothing, before
	// later containers take some over: see handOn.
	whole map[string][]memory.Block
	// ofPod is the pod's pool, once it is placed, and parts are those of sidecars and regular containers.
	ofPod, parts []memory.Block
	// sharers are the containers that share what is left of the pool.
	sharers sets.Set[string]
}

type initBlocks struct {
	container string
	blocks    []memory.Block
}

func newMemory(d *draft) provider {
	p := &ownMemory{
		draft: d, static: d.view.Memory, whole: map[string][]memory.Block{},
		sharers: pooling{d}.sharers(memory.SharesWithinPod),
	}
	p.others = append(d.view.Taken.Memory(), p.ofClaims()...)
	p.held = memory.Sum(p.others...)
	if p.static == nil {
		p.of = func(*v1.Container) map[v1.ResourceName]uint64 { return nil }
	} else {
		p.of = memory.RequestsOf(d.pod, d.view.Rules)
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
	return memoryDemand{p, WholePod, memory.PodRequests(p.draft.pod, p.draft.view.Rules)}, nil
}

// pool implements pooler.
func (p *ownMemory) pool() (demand, error) {
	all, _ := p.ask(nil)
	return all, checkPool(p.draft.pod, all.(memoryDemand).bytes, p.of)
}

// share implements pooler.
func (p *ownMemory) share(c *v1.Container) Holding {
	if len(p.ofPod) == 0 || !p.sharers.Has(c.Name) {
		return nil
	}
	var out Memory
	for _, b := range p.ofPod {
		if taken := sizeOf(p.parts, b.Resource); taken < b.Size {
			b.Size -= taken
			out = append(out, b)
		}
	}
	return out
}

// takeOfPool accounts for the pod's pool and its parts.
func (p *ownMemory) takeOfPool(container string, kind podspec.Kind, chosen []memory.Block) {
	if container == WholePod {
		p.ofPod, p.held = chosen, memory.Sum(append(p.held, chosen...)...)
		return
	}
	if kind != podspec.Init && !p.sharers.Has(container) {
		p.parts = append(p.parts, chosen...)
	}
}

// take also takes what the container takes over from the init containers' blocks in the plan.
func (p *ownMemory) take(container string, kind podspec.Kind) {
	placed := p.draft.plan.Pod.Containers
	chosen := placed[container].Memory()
	if p.static == nil || len(chosen) == 0 {
		return
	}
	if p.draft.pools {
		p.takeOfPool(container, kind, chosen)
		return
	}
	left := memory.Reuse(p.reusable(), chosen)
	for at := range p.inits {
		i := &p.inits[at]
		i.blocks, left = left[:len(i.blocks):len(i.blocks)], left[len(i.blocks):]
		placed[i.container] = placed[i.container].With(Memory(i.blocks))
	}
	if kind == podspec.Init {
		p.inits = append(p.inits, initBlocks{container, chosen})
	} else {
		p.held = memory.Sum(append(p.held, chosen...)...)
	}
}

// lend adds an init container that holds what is lent, so that the next one can take it over.
func (p *ownMemory) lend(lent []Container) {
	p.draft.give(claimant{Container: &v1.Container{}, kind: podspec.Init},
		Container{}.With(Memory(memory.Sum(BlocksOf(lent)...))))
}

// beside reduces what the init container at this index got to what it holds beside the lasting
// containers. If one of these has a group of nodes that includes its own, it holds nothing, because
// the group's memory is not in use yet: its blocks have size 0 and only say where it runs.
func (p *ownMemory) beside(at int, got *Container, from []Container) error {
	given, others, lent := got.Memory(), BlocksOf(from), false
	for _, b := range given {
		around := uint64(0)
		for _, other := range others {
			if other.Nodes == b.Nodes || other.Nodes.Intersect(b.Nodes).IsEmpty() {
				continue
			}
			lent = true
			if b.Nodes.SubsetOf(other.Nodes) && b.Resource == other.Resource {
				around += other.Size
			}
		}
		if lent && around < b.Size {
			return rejected(memory.ErrGroups)
		}
	}
	out := slices.Clone(given)
	if lent {
		for i := range out {
			out[i].Size = 0
		}
		got.set(Memory(out))
		return nil
	}
	p.whole[p.draft.containers[at].Name] = given
	var later []Container
	for i, other := range p.draft.containers {
		if i > at && other.kind != podspec.Init {
			later = append(later, p.draft.plan.Pod.Containers[other.Name])
		}
	}
	got.set(Memory(memory.Reuse(out, memory.Sum(BlocksOf(later)...))))
	return nil
}

// handOn recomputes what init containers hold, as if all containers had been placed in the order of
// their starts.
func (p *ownMemory) handOn() {
	again := &ownMemory{draft: p.draft, static: p.static}
	placed := p.draft.plan.Pod.Containers
	for _, a := range p.draft.containers {
		if given, whole := p.whole[a.Name]; whole {
			placed[a.Name] = placed[a.Name].With(Memory(given))
		}
		again.take(a.Name, a.kind)
	}
}

func (p *ownMemory) reusable() (out []memory.Block) {
	for _, i := range p.inits {
		out = append(out, i.blocks...)
	}
	return out
}

// left adds what later containers keep to what is held. They keep it of what init containers leave, as far
// as that goes, so that only the rest can be reused.
func (p *ownMemory) left(later []Container) (held, reusable []memory.Block) {
	kept := BlocksOf(later)
	return slices.Concat(p.held, kept), memory.Reuse(p.reusable(), kept)
}

// BlocksOf lists the containers' memory, in their order.
func BlocksOf(containers []Container) (out []memory.Block) {
	for _, c := range containers {
		out = append(out, c.Memory()...)
	}
	return out
}

// memoryDemand is a demand for bytes by resource.
type memoryDemand struct {
	from      *ownMemory
	container string // WholePod: the pod
	bytes     map[v1.ResourceName]uint64
}

func (d memoryDemand) lacks(held Container) []string {
	if len(held.Memory()) >= len(d.bytes) {
		return nil
	}
	return []string{fmt.Sprintf("memory of %s on nodes of its own", whose(d.container))}
}

// keep keeps blocks that match the request and still have room. Later containers may have taken
// over a part of an init container's blocks; it gets the whole back, and they take their part
// again.
func (d memoryDemand) keep(kind podspec.Kind, own Container, kept *Container) bool {
	if d.from.static == nil {
		kept.set(Memory(own.Memory()))
		return true
	}
	blocks := slices.Clone(own.Memory())
	if len(blocks) != len(d.bytes) {
		return false
	}
	if d.inPool() {
		if !slices.Equal(blocks, d.ofPool()) {
			return false
		}
		kept.set(Memory(blocks))
		return true
	}
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
	kept.set(Memory(blocks))
	return true
}

func (d memoryDemand) offer(k fixed) offer {
	if len(d.bytes) == 0 {
		return offer{}
	}
	kept := BlocksOf(k.own)
	if len(d.from.ofPod) > 0 {
		kept = d.from.ofPod
	}
	must := topology.NodeSet{}
	held, reusable := d.from.left(k.later)
	switch resizes := d.from.draft.view.Keep == KeepResized; {
	case len(kept) == 0, resizes && d.container != "":
	case resizes:
		held, reusable = d.from.others, nil // what is kept may be on more nodes then
	default: // it has to go with the rest, on the nodes where it is
		held, reusable = d.from.others, kept
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

func (d memoryDemand) choose(later []Container, hint topology.Hint, got *Container) error {
	switch has := got.Memory(); {
	case len(d.bytes) == 0:
		return nil
	case len(has) > 0 && d.from.draft.view.Keep == KeepResized:
		return d.resize(later, hint, got)
	case len(has) > 0:
		return nil
	case d.inPool():
		got.set(Memory(d.ofPool()))
		return nil
	}
	held, reusable := d.from.left(later)
	blocks, err := d.from.static.Choose(held, reusable, d.bytes, hint)
	got.set(Memory(blocks))
	return err
}

// inPool reports whether a container gets the memory from its pod's pool.
func (d memoryDemand) inPool() bool { return d.from.draft.pools && d.container != WholePod }

// ofPool returns the container's part of the pool, which is placed.
func (d memoryDemand) ofPool() []memory.Block {
	if len(d.from.ofPod) == 0 {
		return nil
	}
	return d.on(d.from.ofPod[0].Nodes)
}
