package topology_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
)

// A merge with ordered nodes equals a merge on a machine whose nodes have these places as ids.
func TestOrderedMerge(t *testing.T) {
	for i := range 5_000 {
		r := rand.New(rand.NewPCG(37, uint64(i)))
		m := randomMachine(t, r)
		nodes, offers := m.NodeSet(), randomOffers(m, r)
		ids := nodes.IDs()
		r.Shuffle(len(ids), func(a, b int) { ids[a], ids[b] = ids[b], ids[a] })
		place := map[topology.NodeID]topology.NodeID{}
		back := map[topology.NodeID]topology.NodeID{}
		for at, id := range ids {
			place[id], back[topology.NodeID(at)] = topology.NodeID(at), id
		}
		for _, policy := range policies {
			want := exhaustive.Merge(policy, moved(nodes, place), movedOffers(offers, place), nil)
			want.Hint.Nodes = moved(want.Hint.Nodes, back)
			got := topology.Options{}.Ordered(ids).Merge(policy, nodes, offers)
			if got != want {
				t.Fatalf("case %d, %s on %v in the order %v: got %v, want %v\n%v",
					i, policy, nodes, ids, got, want, offers)
			}
		}
	}
}

// moved returns the set with other ids; nodes without one are not of the machine, and stay
// distinct.
func moved(set topology.NodeSet, to map[topology.NodeID]topology.NodeID) topology.NodeSet {
	var ids []topology.NodeID
	for _, id := range set.IDs() {
		other, known := to[id]
		if !known {
			other = id + 16
		}
		ids = append(ids, other)
	}
	return topology.NewNodeSet(ids...)
}

func movedOffers(
	offers [][]topology.ResourceHints, to map[topology.NodeID]topology.NodeID,
) [][]topology.ResourceHints {
	out := make([][]topology.ResourceHints, len(offers))
	for i, resources := range offers {
		for _, r := range resources {
			r.Hints = slices.Clone(r.Hints)
			for j := range r.Hints {
				r.Hints[j].Nodes = moved(r.Hints[j].Nodes, to)
			}
			out[i] = append(out[i], r)
		}
	}
	return out
}

func TestStrategyOrder(t *testing.T) {
	nodes := topology.NewNodeSet(0, 1, 2, 3)
	supplies := []topology.Supply{
		{
			Nodes:   []topology.NodeID{0, 1, 2, 3},
			Amounts: []topology.Amount{{Wanted: 2, Free: []uint64{8, 4, 8, 2}}},
		},
		{ // devices that only two nodes have
			Nodes:   []topology.NodeID{0, 2},
			Amounts: []topology.Amount{{Wanted: 1, Free: []uint64{1, 2}}},
		},
		{
			Nodes:   []topology.NodeID{1},
			Amounts: []topology.Amount{{Wanted: 0, Free: []uint64{100}}}, // wants nothing
		},
	}
	for _, c := range []struct {
		strategy topology.Strategy
		want     []topology.NodeID
	}{
		{topology.LowestNodes, nil},
		{topology.Packed, []topology.NodeID{3, 1, 0, 2}},
		{topology.Spread, []topology.NodeID{2, 0, 1, 3}},
	} {
		if got := c.strategy.Order(nodes, supplies); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.strategy, got, c.want)
		}
	}
	same := []topology.NodeID{0, 1, 2, 3}
	for _, s := range []topology.Strategy{topology.Packed, topology.Spread} {
		if got := s.Order(nodes, nil); !slices.Equal(got, same) {
			t.Errorf("%s of nodes that have the same: %v, want the lower ids first", s, got)
		}
	}
}

func TestParseStrategy(t *testing.T) {
	for text, want := range map[string]topology.Strategy{
		"": topology.LowestNodes, "lowest": topology.LowestNodes, "packed": topology.Packed,
		"spread": topology.Spread,
	} {
		if got, err := topology.ParseStrategy(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := topology.ParseStrategy("wide"); err == nil {
		t.Error("wide is a strategy")
	}
}

func TestStrictPolicies(t *testing.T) {
	got := topology.Restricted.Strict()
	if want := []topology.Policy{
		topology.Restricted, topology.SingleNUMANode,
	}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := topology.None.Strict(); len(got) != 4 {
		t.Errorf("stricter than none: %v", got)
	}
}
