package topology_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// need is a supply, node by node.
type need struct {
	Amount   uint64
	Free     map[topology.NodeID]uint64
	Width    int // 0: any
	Must     topology.NodeSet
	Sets     []topology.NodeSet
	Fits     func(topology.NodeSet) bool // nil: if the nodes together have the amount
	Additive bool
}

// common calls topology.Common for the needs.
func common(nodes topology.NodeSet, needs []need) topology.NodeSet {
	var supplies []topology.Supply
	for _, n := range needs {
		s := topology.Supply{
			Nodes: nodes.IDs(), Width: n.Width, Must: n.Must, Sets: n.Sets, Additive: n.Additive,
			Amounts: []topology.Amount{{Wanted: n.Amount}},
		}
		if n.Width == 0 {
			s.Prefers = func(topology.NodeSet) bool { return true }
		}
		for _, id := range s.Nodes {
			s.Amounts[0].Free = append(s.Amounts[0].Free, n.Free[id])
		}
		s.Holds = func(set topology.NodeSet, at []int) bool {
			if n.Fits != nil {
				return n.Fits(set)
			}
			sum := uint64(0)
			for _, i := range at {
				sum += s.Amounts[0].Free[i]
			}
			return sum >= n.Amount
		}
		supplies = append(supplies, s)
	}
	return topology.Common(nodes, supplies)
}

// commonNaively tries every set.
func commonNaively(nodes int, needs []need, width int) bool {
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
		var needs []need
		for range rapid.IntRange(1, 4).Draw(t, "needs") {
			// As wide as width on an empty machine of equal nodes.
			const size = 8
			n := need{
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
		got, want := common(all, needs), commonNaively(nodes, needs, width)
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
	grouped := need{
		Amount: 2, Width: 2, Free: free(0), Sets: []topology.NodeSet{set(2, 3), set(4, 5)},
		Fits: func(s topology.NodeSet) bool { return s == set(2, 3) || s == set(4, 5) },
	}
	sockets := need{ // any width
		Amount: 1, Free: free(4),
		Fits: func(s topology.NodeSet) bool { return !s.Has(3) },
	}
	picky := need{ // node 0 has all that node 5 has, but only 3 and 5 fit
		Amount: 2, Width: 2, Free: free(0, 1, 2, 3, 4, 5),
		Fits: func(s topology.NodeSet) bool { return s == set(3, 5) },
	}
	for name, test := range map[string]struct {
		needs []need
		want  string
	}{
		"sums do not tell all": {[]need{picky}, "3,5"},
		"nor those of others do": {[]need{
			{Amount: 2, Width: 2, Free: picky.Free, Additive: true}, picky}, "3,5"},
		"must belong, to further sets too": {[]need{
			{Amount: 1, Width: 2, Free: free(4), Must: set(4)}, grouped}, "4-5"},
		"must belong, though others have as much": {[]need{
			{Amount: 1, Width: 2, Free: picky.Free, Must: set(4)}, grouped}, "4-5"},
		"nothing is needed": {nil, ""},
		"widths differ": {[]need{{Width: 1, Free: free(1)},
			{Width: 2, Free: free(1, 2)}}, ""},
		"of further sets": {[]need{{Amount: 2, Width: 2, Free: free(1, 2, 3)},
			grouped}, "2-3"},
		"as others allow": {[]need{{Amount: 2, Width: 2, Free: free(2, 3, 4, 5)},
			grouped, sockets}, "4-5"},
		"not beside one another": {[]need{{Amount: 2, Width: 2, Free: free(3, 4)},
			grouped}, ""},
		"must belong, too many": {[]need{{Amount: 1, Width: 1, Free: free(1, 2),
			Must: set(1, 2)}}, ""},
		"must belong, not there": {[]need{{Amount: 1, Width: 1, Free: free(1),
			Must: set(9)}}, ""},
		"must belong, has little": {[]need{{Amount: 2, Width: 3, Free: free(1, 2),
			Must: set(0)}}, "0-2"},
	} {
		if got := common(set(0, 1, 2, 3, 4, 5), test.needs).String(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
