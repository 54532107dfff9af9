package memory_test

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/topologytest"
)

// naive implements the rules literally, over all sets of all nodes.
type naive struct {
	shape          shape
	held, reusable []memory.Block
}

func (n naive) subsets() (sets []topology.NodeSet) {
	for mask := 1; mask < 1<<len(n.shape); mask++ {
		var ids []topology.NodeID
		for i := range n.shape {
			if mask&(1<<i) != 0 {
				ids = append(ids, topology.NodeID(i))
			}
		}
		sets = append(sets, nodes(ids...))
	}
	slices.SortFunc(sets, func(a, b topology.NodeSet) int {
		return cmp.Or(cmp.Compare(a.Len(), b.Len()), a.Compare(b))
	})
	return sets
}

func (n naive) allocatable(set topology.NodeSet, name v1.ResourceName) (sum uint64) {
	for _, id := range set.IDs() {
		size := n.shape[id]
		switch {
		case size[0] == 0:
		case name == pages:
			sum += size[1] * gib
		case size[0] > size[1]+1:
			sum += (size[0] - size[1] - 1) * gib
		}
	}
	return sum
}

// blocks returns all that count for groups.
func (n naive) blocks() []memory.Block { return slices.Concat(n.held, n.reusable) }

func (n naive) allowed(set topology.NodeSet) bool {
	for _, b := range n.blocks() {
		if b.Nodes != set && !b.Nodes.Intersect(set).IsEmpty() {
			return false
		}
	}
	return true
}

// room is for allowed sets: no block is partly on them.
func (n naive) room(set topology.NodeSet, w wants) bool {
	for name, size := range w {
		free := n.allocatable(set, name)
		for _, b := range n.held {
			if b.Nodes == set && b.Resource == name {
				free -= b.Size
			}
		}
		if free < size {
			return false
		}
	}
	return true
}

func (n naive) hints(w wants) (hints []topology.Hint) {
	narrowest := len(n.shape)
	for _, set := range n.subsets() {
		fits := true
		for name, size := range w {
			fits = fits && n.allocatable(set, name) >= size
		}
		if fits {
			narrowest = min(narrowest, set.Len())
		}
	}
	for _, set := range n.subsets() {
		if n.allowed(set) && n.room(set, w) {
			hints = append(hints, topology.Hint{Nodes: set, Preferred: set.Len() == narrowest})
		}
	}
	return hints
}

// withMemory drops the sets with a node without memory; they must not be preferred.
func (n naive) withMemory(t topologytest.Failer, hints []topology.Hint) (out []topology.Hint) {
	t.Helper()
	for _, h := range hints {
		bare := slices.ContainsFunc(h.Nodes.IDs(), func(id topology.NodeID) bool {
			return n.shape[id][0] == 0
		})
		if !bare {
			out = append(out, h)
		} else if h.Preferred {
			t.Fatal("preferred though a node has no memory", h.Nodes)
		}
	}
	return out
}

// drawCase makes a machine in use, with some reusable blocks.
func drawCase(t *rapid.T, most int) (naive, *memory.Static) {
	n := naive{shape: someShape(t, most)}
	p := n.shape.static(t)
	n.held = someHeld(t, p, 6)
	if len(n.held) > 0 && rapid.Bool().Draw(t, "reuse") {
		at := rapid.IntRange(0, len(n.held)-1).Draw(t, "reused")
		n.reusable = []memory.Block{n.held[at]}
		n.held = slices.Delete(n.held, at, at+1)
	}
	return n, p
}

func TestHintsAreTheNaiveOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := drawCase(t, 8)
		w := someWants(t)
		offers := hintsOf(p, n.held, n.reusable, w)
		expected := n.withMemory(t, n.hints(w))
		if len(expected) == 0 {
			if offers != nil {
				t.Fatalf("offers %v, expected none", offers)
			}
			return
		}
		if len(offers) != len(w) {
			t.Fatalf("offers for %d resources, requested are %d", len(offers), len(w))
		}
		for _, offer := range offers {
			if diff := gocmp.Diff(expected, offer.Hints, gocmp.Comparer(equal)); diff != "" {
				t.Fatalf("%s, -naive +ours:\n%s", offer.Resource, diff)
			}
		}
	})
}

func equal(a, b topology.NodeSet) bool { return a == b }

// bestOf returns the preferred, else the narrowest, else the first of the hints around nodes.
func bestOf(hints []topology.Hint, around topology.NodeSet) (topology.Hint, bool) {
	hints = slices.DeleteFunc(slices.Clone(hints), func(h topology.Hint) bool {
		return !around.SubsetOf(h.Nodes)
	})
	if len(hints) == 0 {
		return topology.Hint{}, false
	}
	return slices.MinFunc(hints, func(a, b topology.Hint) int {
		if a.Preferred != b.Preferred {
			if a.Preferred {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Nodes.Len(), b.Nodes.Len())
	}), true
}

func drawHint(t *rapid.T, s shape) topology.Hint {
	hint := topology.Hint{Preferred: rapid.Bool().Draw(t, "preferred")}
	if rapid.IntRange(0, 3).Draw(t, "any") == 0 {
		hint.Any = true
		return hint
	}
	var ids []topology.NodeID
	for i, size := range s {
		if size[0] > 0 && rapid.Bool().Draw(t, "in hint") {
			ids = append(ids, topology.NodeID(i))
		}
	}
	hint.Nodes = nodes(ids...)
	hint.Any = len(ids) == 0
	return hint
}

func TestChooseIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := drawCase(t, 6)
		w := someWants(t)
		hint := drawHint(t, n.shape)
		all := n.withMemory(t, n.hints(w))
		got, err := p.Choose(n.held, n.reusable, w, hint)

		expected, ok := hint, slices.ContainsFunc(all, func(h topology.Hint) bool {
			return !hint.Any && h.Nodes == hint.Nodes
		})
		if !ok {
			expected, ok = bestOf(all, hint.Nodes)
			ok = ok && (expected.Preferred || !hint.Preferred)
			// Nodes that have room but break the rule are refused, except a single one in a group.
			if !errors.Is(err, memory.ErrGroups) && ok != (err == nil) {
				t.Fatalf("error %v, naive places on %q: %v", err, expected.Nodes, ok)
			}
			if errors.Is(err, memory.ErrGroups) && (hint.Nodes.Len() < 2 || n.allowed(hint.Nodes)) {
				t.Fatalf("%v, but %q may be used", err, hint.Nodes)
			}
		} else if err != nil {
			t.Fatalf("%v, but %q has room", err, hint.Nodes)
		}
		for _, b := range got {
			if b.Nodes != expected.Nodes || b.Size != w[b.Resource] {
				t.Fatalf("got %+v, expected on %q", b, expected.Nodes)
			}
		}
		if err == nil && len(got) != len(w) {
			t.Fatalf("%d blocks for %d resources", len(got), len(w))
		}
	})
}

// In any order of events: no memory is promised twice, and groups stay apart.
func TestNothingIsPromisedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := someShape(t, 8)
		p := s.static(t)
		var held []memory.Block
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(held) > 0 && rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				at := rapid.IntRange(0, len(held)-1).Draw(t, "at")
				held = slices.Delete(held, at, at+1)
			} else if got, err := p.Choose(held, nil, someWants(t), drawHint(t, s)); err == nil {
				held = append(held, got...)
			}
			validate(t, naive{shape: s, held: held}, p)
		}
	})
}

func validate(t *rapid.T, n naive, p *memory.Static) {
	t.Helper()
	for _, a := range n.held {
		if !n.allowed(a.Nodes) {
			t.Fatalf("%+v shares nodes with another group in %+v", a, n.held)
		}
		if !n.room(a.Nodes, nil) {
			t.Fatalf("%+v has no room", a)
		}
	}
	if misfits := p.Misfits(n.held); misfits != nil {
		t.Fatalf("no room for %+v", misfits)
	}
	usage := p.Usage(n.held)
	for _, name := range []v1.ResourceName{v1.ResourceMemory, pages} {
		free, held, all := uint64(0), uint64(0), uint64(0)
		for _, u := range usage {
			free += u.Free[name]
			all += n.allocatable(nodes(u.Node), name)
		}
		for _, b := range n.held {
			if b.Resource == name {
				held += b.Size
			}
		}
		if free+held != all {
			t.Fatalf("%s: %d free and %d held of %d", name, free, held, all)
		}
	}
}

// With reuse a pod holds, on each set of nodes, what its largest container needs.
func TestReuseOfInitContainers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := shape{{9, 0}}.static(t)
		var inits []memory.Block
		most := uint64(0)
		for range rapid.IntRange(1, 5).Draw(t, "init containers") {
			size := rapid.Uint64Range(1, 8).Draw(t, "size")
			got, err := p.Choose(nil, inits, want(size), topology.Hint{Any: true})
			if err != nil {
				t.Fatal(err)
			}
			inits = append(memory.Reuse(inits, got), got...)
			most = max(most, size)
		}
		sum := uint64(0)
		for _, b := range inits {
			sum += b.Size
		}
		if sum != most*gib {
			t.Fatalf("the pod holds %d bytes, its largest container needs %d GiB", sum, most)
		}
	})
}

// On wide machines not all sets are offered. But offered ones have room, one is offered if any has
// room, and a hint is extended if it can be.
func TestWideMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := make(shape, rapid.IntRange(12, 24).Draw(t, "nodes"))
		for i := range s {
			s[i][0] = rapid.SampledFrom([]uint64{0, 3, 5, 9}).Draw(t, "gib")
		}
		s[0][0] = 5
		p := s.static(t)
		n := naive{shape: s, held: someHeld(t, p, 4)}
		w := want(rapid.Uint64Range(1, 60).Draw(t, "memory"))
		offers := hintsOf(p, n.held, nil, w)
		unused := topology.NodeSet{}
		for i := range s {
			if id := topology.NodeID(i); s[i][0] > 0 && n.allowed(nodes(id)) &&
				len(blocksOn(n.held, id)) == 0 {
				unused = unused.Union(nodes(id))
			}
		}
		if n.room(unused, w) && len(offers) == 0 {
			t.Fatalf("no offer, though %q has room", unused)
		}
		if len(offers) > 0 {
			for _, h := range offers[0].Hints {
				if !n.allowed(h.Nodes) || !n.room(h.Nodes, w) {
					t.Fatalf("%q is offered", h.Nodes)
				}
			}
		}
		ids := unused.IDs()
		if len(ids) == 0 || !n.room(unused, w) {
			return
		}
		from := nodes(ids[len(ids)-1], ids[0])
		got, err := p.Choose(n.held, nil, w, topology.Hint{Nodes: from})
		if err != nil || !from.SubsetOf(got[0].Nodes) {
			t.Fatalf("%q is not extended: %+v, %v", from, got, err)
		}
	})
}

func blocksOn(blocks []memory.Block, id topology.NodeID) (on []memory.Block) {
	for _, b := range blocks {
		if b.Nodes.Has(id) {
			on = append(on, b)
		}
	}
	return on
}
