package topology_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestMergeDifferential compares 100,000 random merges with a search through all picks, each under
// every policy, by node ids and by distances, on machines with up to eight nodes, some without CPUs
// or memory.
func TestMergeDifferential(t *testing.T) {
	cases := 100_000
	if testing.Short() {
		cases = 5_000
	}
	for i := range cases {
		r := rand.New(rand.NewPCG(2026, uint64(i)))
		m := randomMachine(t, r)
		nodes, offers, closest := m.NodeSet(), randomOffers(m, r), topology.PreferClosest(m)
		for _, policy := range policies {
			got, want := topology.Options{}.Merge(policy, nodes, offers),
				exhaustive.Merge(policy, nodes, offers, nil)
			if got != want {
				t.Fatalf("case %d, %s on %v: got %v, going through all picks gives %v\n%v",
					i, policy, nodes, got, want, offers)
			}
			got = closest.Merge(policy, nodes, offers)
			want = exhaustive.Merge(policy, nodes, offers, m.Distance)
			if got != want {
				t.Fatalf("case %d, %s on %v, closest: got %v, going through all picks gives %v\n%v",
					i, policy, nodes, got, want, offers)
			}
		}
	}
}

// Beyond eight nodes the search is limited, but lists short enough for the exhaustive search never
// reach the limit.
func TestMergeDifferentialOnManyNodes(t *testing.T) {
	for i := range 2_000 {
		r := rand.New(rand.NewPCG(64, uint64(i)))
		m := ring(t, 9+r.IntN(40))
		var lists [][]topology.Hint
		for range 1 + r.IntN(3) {
			lists = append(lists, randomSets(m.NodeSet().Len(), r.IntN(9), 1+r.IntN(8), r))
		}
		nodes, offers := m.NodeSet(), offersOf(lists)
		for name, options := range map[string]topology.Options{
			"plain": {}, "closest": topology.PreferClosest(m),
		} {
			distance := m.Distance
			if name == "plain" {
				distance = nil
			}
			got := options.Merge(topology.BestEffort, nodes, offers)
			want := exhaustive.Merge(topology.BestEffort, nodes, offers, distance)
			if got != want {
				t.Fatalf("case %d, %s: got %v, going through all picks gives %v\n%v",
					i, name, got, want, offers)
			}
		}
	}
}

// randomMachine has one to eight nodes with gaps between their ids.
func randomMachine(t *testing.T, r *rand.Rand) *topology.Machine {
	spec := topology.Spec{Name: "random"}
	kind := r.IntN(4) // distances: none, groups, symmetric, random
	ids := r.Perm(12)[:1+r.IntN(8)]
	for i, id := range ids {
		node := topology.Node{ID: topology.NodeID(id), Distances: map[topology.NodeID]int{}}
		cpus, memory := true, true
		switch r.IntN(5) {
		case 0:
			cpus = i == 0
		case 1:
			memory = false
		}
		if memory {
			node.MemoryBytes = uint64(1+r.IntN(3)) << 30
		}
		for _, other := range ids {
			if d := distance(kind, id, other, r); d > 0 {
				node.Distances[topology.NodeID(other)] = d
			}
		}
		spec.Nodes = append(spec.Nodes, node)
		for c := range r.IntN(3) {
			if cpus {
				spec.CPUs = append(spec.CPUs, topology.CPU{ID: 4*id + c, Node: node.ID,
					Socket: topology.SocketID(id), Core: topology.CoreID(4*id + c)})
			}
		}
	}
	if len(spec.CPUs) == 0 {
		spec.CPUs = []topology.CPU{{ID: 0, Node: spec.Nodes[0].ID}}
	}
	return topologytest.Of(t, spec)
}

func distance(kind, a, b int, r *rand.Rand) int {
	switch {
	case kind == 0:
		return 0
	case a == b:
		return 10
	case kind == 1 && a/4 == b/4:
		return 12
	case kind == 1:
		return 32
	case kind == 2:
		return 11 + (a*b+a+b)%7
	default:
		return 10 + r.IntN(6)
	}
}

// randomOffers returns offers of up to four providers, with few enough picks for the exhaustive
// search.
func randomOffers(m *topology.Machine, r *rand.Rand) (offers [][]topology.ResourceHints) {
	picks, most := 1, 200
	switch r.IntN(500) {
	case 0:
		most = 30_000
	case 1, 2, 3, 4, 5:
		most = 3_000
	}
	for range r.IntN(5) {
		var provider []topology.ResourceHints
		for range 1 + r.IntN(10)/8 {
			hints := randomHints(m, r)
			r.Shuffle(len(hints), func(i, j int) { hints[i], hints[j] = hints[j], hints[i] })
			if fit := max(1, most/picks); len(hints) > fit {
				hints = hints[:fit]
			}
			picks *= max(1, len(hints))
			provider = append(provider, topology.ResourceHints{
				Resource: fmt.Sprint("example.com/", len(offers)), Hints: hints,
			})
		}
		offers = append(offers, provider)
	}
	r.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	return offers
}

// randomHints returns hints as a provider of CPUs, memory or devices would give, or arbitrary ones.
func randomHints(m *topology.Machine, r *rand.Rand) []topology.Hint {
	capacity := map[topology.NodeID]int{}
	for _, n := range m.Nodes() {
		switch r.IntN(3) {
		case 0:
			capacity[n.ID] = m.CPUsOfNode(n.ID).Size()
		case 1:
			capacity[n.ID] = int(n.MemoryBytes >> 30)
		default:
			capacity[n.ID] = r.IntN(3)
		}
	}
	switch r.IntN(12) {
	case 0:
		return nil
	case 1:
		return []topology.Hint{}
	case 2, 3, 4:
		return anyHints(m, r)
	}
	return roomHints(m, capacity, 1+r.IntN(6), r)
}

// roomHints returns all sets whose free capacity has room for the request.
func roomHints(
	m *topology.Machine, capacity map[topology.NodeID]int, request int, r *rand.Rand,
) []topology.Hint {
	ids := m.NodeSet().IDs()
	free := map[topology.NodeID]int{}
	for _, id := range ids {
		free[id] = r.IntN(capacity[id] + 1)
	}
	narrowest := len(ids)
	hints := []topology.Hint{}
	for mask := 1; mask < 1<<len(ids); mask++ {
		var members []topology.NodeID
		whole, room := 0, 0
		for i, id := range ids {
			if mask&(1<<i) != 0 {
				members = append(members, id)
				whole, room = whole+capacity[id], room+free[id]
			}
		}
		if whole >= request {
			narrowest = min(narrowest, len(members))
		}
		if room >= request {
			hints = append(hints, topology.Hint{Nodes: topology.NewNodeSet(members...)})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Len() == narrowest
	}
	return hints
}

// anyHints returns arbitrary sets, also with a node that the machine lacks, and arbitrary
// preferences.
func anyHints(m *topology.Machine, r *rand.Rand) []topology.Hint {
	ids := append(m.NodeSet().IDs(), 100)
	preferred := r.IntN(4)
	var hints []topology.Hint
	for range 1 + r.IntN(12) {
		h := topology.Hint{Preferred: r.IntN(4) < preferred, Any: r.IntN(20) == 0}
		if !h.Any {
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			h.Nodes = topology.NewNodeSet(slices.Clone(ids[:r.IntN(len(ids))])...)
		}
		hints = append(hints, h)
	}
	return hints
}
