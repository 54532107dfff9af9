package topology_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// commonNaively tries every set.
func commonNaively(nodes int, needs []topology.Need, width int) bool {
	found := false
	topology.Combinations(nodes, width, func(set []int) bool {
		ok := true
		for _, n := range needs {
			sum, must := uint64(0), 0
			for _, id := range set {
				sum += n.Free[topology.NodeID(id)]
				if n.Must.Has(topology.NodeID(id)) {
					must++
				}
			}
			ok = ok && n.Width == width && sum >= n.Amount && must == n.Must.Len()
		}
		found = ok
		return !found
	})
	return found
}

func TestCommonIsFoundIfThereIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, width := 16, rapid.IntRange(1, 8).Draw(t, "width")
		if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
			nodes, width = 64, rapid.IntRange(1, 3).Draw(t, "few")
		}
		var needs []topology.Need
		for range rapid.IntRange(1, 4).Draw(t, "needs") {
			// As wide as the width on an empty machine of equal nodes.
			const size = 8
			n := topology.Need{
				Amount: rapid.Uint64Range(uint64(size*(width-1)+1),
					uint64(size*width)).Draw(t, "amount"),
				Width: width, Free: map[topology.NodeID]uint64{}, Additive: true,
			}
			low := rapid.Uint64Range(0, size).Draw(t, "low")
			for id := range nodes {
				n.Free[topology.NodeID(id)] = rapid.Uint64Range(low, size).Draw(t, "free")
			}
			if rapid.IntRange(0, 4).Draw(t, "must") == 0 {
				node := rapid.IntRange(0, nodes-1).Draw(t, "node")
				n.Must = topology.NewNodeSet(topology.NodeID(node))
			}
			needs = append(needs, n)
		}
		all := topology.NodeSet{}
		for id := range nodes {
			all = all.Union(topology.NewNodeSet(topology.NodeID(id)))
		}
		got, want := topology.Common(all, needs), commonNaively(nodes, needs, width)
		if got.IsEmpty() == want {
			t.Fatalf("found %q, naively there is one: %v", got, want)
		}
		for i, n := range needs {
			sum := uint64(0)
			for _, id := range got.IDs() {
				sum += n.Free[id]
			}
			if want && (sum < n.Amount || got.Len() != width || !n.Must.SubsetOf(got)) {
				t.Fatalf("%q does not hold need %d", got, i)
			}
		}
	})
}

func TestCommonOfSetsAndWidths(t *testing.T) {
	set := topology.NewNodeSet
	free := func(ids ...topology.NodeID) map[topology.NodeID]uint64 {
		out := map[topology.NodeID]uint64{}
		for _, id := range ids {
			out[id] = 1
		}
		return out
	}
	grouped := topology.Need{
		Amount: 2, Width: 2, Free: free(0), Sets: []topology.NodeSet{set(2, 3), set(4, 5)},
		Fits: func(s topology.NodeSet) bool { return s == set(2, 3) || s == set(4, 5) },
	}
	sockets := topology.Need{ // of any width
		Amount: 1, Free: free(4),
		Fits: func(s topology.NodeSet) bool { return !s.Has(3) },
	}
	picky := topology.Need{ // node 0 has all that node 5 has, and yet
		Amount: 2, Width: 2, Free: free(0, 1, 2, 3, 4, 5),
		Fits: func(s topology.NodeSet) bool { return s == set(3, 5) },
	}
	for name, test := range map[string]struct {
		needs []topology.Need
		want  string
	}{
		"sums do not tell all": {[]topology.Need{picky}, "3,5"},
		"nor those of others do": {[]topology.Need{
			{Amount: 2, Width: 2, Free: picky.Free, Additive: true}, picky}, "3,5"},
		"must belong, to further sets too": {[]topology.Need{
			{Amount: 1, Width: 2, Free: free(4), Must: set(4)}, grouped}, "4-5"},
		"must belong, though others have as much": {[]topology.Need{
			{Amount: 1, Width: 2, Free: picky.Free, Must: set(4)}, grouped}, "4-5"},
		"nothing is needed": {nil, ""},
		"widths differ": {[]topology.Need{{Width: 1, Free: free(1)},
			{Width: 2, Free: free(1, 2)}}, ""},
		"of further sets": {[]topology.Need{{Amount: 2, Width: 2, Free: free(1, 2, 3)},
			grouped}, "2-3"},
		"as others allow": {[]topology.Need{{Amount: 2, Width: 2, Free: free(2, 3, 4, 5)},
			grouped, sockets}, "4-5"},
		"not beside one another": {[]topology.Need{{Amount: 2, Width: 2, Free: free(3, 4)},
			grouped}, ""},
		"must belong, too many": {[]topology.Need{{Amount: 1, Width: 1, Free: free(1, 2),
			Must: set(1, 2)}}, ""},
		"must belong, not there": {[]topology.Need{{Amount: 1, Width: 1, Free: free(1),
			Must: set(9)}}, ""},
		"must belong, has little": {[]topology.Need{{Amount: 2, Width: 3, Free: free(1, 2),
			Must: set(0)}}, "0-2"},
	} {
		if got := topology.Common(set(0, 1, 2, 3, 4, 5), test.needs).String(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
