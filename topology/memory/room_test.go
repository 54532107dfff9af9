package memory_test

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// A node in two groups is not used, in whatever order the blocks are looked at.
func TestANodeInTwoGroupsIsNotUsed(t *testing.T) {
	p := shape{{9, 0}, {9, 0}, {9, 0}}.static(t)
	held := []memory.Block{block(2, 0, 1), block(1, 0), block(1, 0)}
	for _, hint := range []topology.Hint{only(0), only(0, 1)} {
		if blocks, err := p.Choose(held, nil, want(1), hint); err == nil {
			t.Errorf("hint %s: placed on %s", hint, blocks[0].Nodes)
		}
	}
	expected := []topology.Hint{preferred(2)}
	got := hintsOf(p, held, nil, want(1))[0].Hints
	if diff := gocmp.Diff(expected, got, gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestABlockOnANodeThatIsGoneIsAMisfit(t *testing.T) {
	p := shape{{9, 0}, {9, 0}}.static(t)
	held := []memory.Block{block(1, 0), block(1, 1, 2)} // node 1 alone would have room
	expected := []memory.Block{block(1, 1, 2)}
	if diff := gocmp.Diff(expected, p.Misfits(held), gocmp.Comparer(equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHasRoom(t *testing.T) {
	p := shape{{9, 0}, {9, 0}, {9, 0}}.static(t) // 8 GiB each for pods
	for name, c := range map[string]struct {
		held, blocks []memory.Block
		want         bool
	}{
		"free":              {nil, []memory.Block{block(8, 0)}, true},
		"too large":         {nil, []memory.Block{block(9, 0)}, false},
		"beside another":    {[]memory.Block{block(3, 0)}, []memory.Block{block(5, 0)}, true},
		"no room beside it": {[]memory.Block{block(4, 0)}, []memory.Block{block(5, 0)}, false},
		"in the same group": {[]memory.Block{block(9, 0, 1)}, []memory.Block{block(7, 0, 1)}, true},
		"alone in a group":  {[]memory.Block{block(1, 0, 1)}, []memory.Block{block(1, 1)}, false},
		"a group over one":  {[]memory.Block{block(1, 1)}, []memory.Block{block(1, 0, 1)}, false},
		"groups that overlap": {
			[]memory.Block{block(1, 0, 1)}, []memory.Block{block(1, 1, 2)}, false,
		},
	} {
		if got := p.HasRoom(c.held, c.blocks); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// A group in use also counts by what is needed of it: its nodes are in no other set.
func TestSupplyNamesGroups(t *testing.T) {
	p := shape{{9, 0}, {9, 0}, {9, 0}, {9, 0}}.static(t)
	held := []memory.Block{block(1, 0, 1), block(1, 2), block(1, 3)}
	of := func(size uint64) []topology.Supply {
		return []topology.Supply{p.Supply(held, nil, want(size))}
	}
	if got := topology.Common(nodes(0, 1, 2, 3), of(12)); got != nodes(0, 1) {
		t.Errorf("got %q", got)
	}
	if got := topology.Common(nodes(0, 1, 2, 3), of(16)); !got.IsEmpty() {
		t.Errorf("without room: got %q", got)
	}
}

// Of equally narrow sets the one with the lower value as a binary number comes first, as in a
// merge.
func TestChooseOfEquallyNarrowSets(t *testing.T) {
	p := shape{{9, 0}, {9, 0}, {9, 0}, {9, 0}}.static(t)
	held := []memory.Block{block(9, 1, 2), block(9, 0, 3)}
	got, err := p.Choose(held, nil, want(2), topology.Hint{Any: true})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Nodes != nodes(1, 2) {
		t.Errorf("on %s, want 1-2", got[0].Nodes)
	}
}

// Blocks of one resource on the same nodes count as their sum.
func TestSum(t *testing.T) {
	a, b := topology.NewNodeSet(0), topology.NewNodeSet(0, 1)
	of := func(nodes topology.NodeSet, name v1.ResourceName, size uint64) memory.Block {
		return memory.Block{Nodes: nodes, Resource: name, Size: size}
	}
	got := memory.Sum(
		of(a, v1.ResourceMemory, 1), of(b, v1.ResourceMemory, 2), of(a, "hugepages-2Mi", 4),
		of(a, v1.ResourceMemory, 8), of(b, v1.ResourceMemory, 0),
	)
	want := []memory.Block{
		of(a, v1.ResourceMemory, 9), of(b, v1.ResourceMemory, 2), of(a, "hugepages-2Mi", 4),
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
