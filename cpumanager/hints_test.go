package cpumanager_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

func hintStrings(hints []topology.Hint) string {
	var out []string
	for _, h := range hints {
		out = append(out, h.String())
	}
	return strings.Join(out, "; ")
}

func TestHints(t *testing.T) {
	cpuless := twoNodes.spec()
	cpuless.Nodes = append(cpuless.Nodes, topology.Node{ID: 2, MemoryBytes: 1 << 40})
	for _, c := range []struct {
		name           string
		spec           topology.Spec
		free, reusable string
		n              int
		want           string
	}{
		{"either node", twoNodes.spec(), "1-15", "", 4, "0 preferred; 1 preferred; 0-1"},
		{"one is too full", twoNodes.spec(), "1-7", "", 4, "1 preferred; 0-1"},
		{"both are too full, not preferred", twoNodes.spec(), "1-6", "", 4, "0-1"},
		{"more than a node holds", twoNodes.spec(), "1-15", "", 9, "0-1 preferred"},
		{"more than is free", twoNodes.spec(), "1-15", "", 16, ""},
		{"more than there is", twoNodes.spec(), "0-15", "", 17, ""},
		{"reusable must be inside", twoNodes.spec(), "1-3,9-15", "4", 2, "1 preferred; 0-1"},
		{"reusable on both", twoNodes.spec(), "1-2,9-15", "3-4", 2, "0-1"},
		{"free and reusable overlap", twoNodes.spec(), "4-5", "4-5", 3, ""},
		{"node without cpus", cpuless, "1-15", "", 4, "0 preferred; 1 preferred; 0-1"},
		{"one node", laptop.spec(), "1-7", "", 4, "0 preferred"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := topologytest.Of(t, c.spec)
			got := newStatic(t, m, cpuset.New(0)).Supply(cpus(t, c.free), cpus(t, c.reusable), c.n).Hints()
			if got == nil {
				t.Fatal("nil is no preference, but this is a request")
			}
			if hintStrings(got) != c.want {
				t.Errorf("got %s, want %s", hintStrings(got), c.want)
			}
		})
	}
}

func TestHintsAreAllSetsWithRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := someGrid(t).spec()
		if rapid.Bool().Draw(t, "sparse ids") {
			for i := range spec.Nodes {
				spec.Nodes[i].ID *= 40
			}
			for i := range spec.CPUs {
				spec.CPUs[i].Node *= 40
			}
		}
		m := topologytest.Of(t, spec)
		free := someOf(t, m.Online(), "free")
		reusable := cpuset.New()
		if rapid.IntRange(0, 3).Draw(t, "reuse") == 0 {
			reusable = someOf(t, m.Online(), "reusable")
		}
		n := rapid.IntRange(1, m.Online().Size()+1).Draw(t, "n")
		got := newStatic(t, m, cpuset.New(0)).Supply(free, reusable, n).Hints()

		// The oracle applies the kubelet's rule to every set of nodes.
		ids := m.NodeSet().IDs()
		narrowest := len(ids)
		var sets []topology.NodeSet
		for mask := 1; mask < 1<<len(ids); mask++ {
			var members []topology.NodeID
			for i, id := range ids {
				if mask&(1<<i) != 0 {
					members = append(members, id)
				}
			}
			set := topology.NewNodeSet(members...)
			if m.CPUsOfNodes(set).Size() >= n {
				narrowest = min(narrowest, set.Len())
			}
			sets = append(sets, set)
		}
		var want []topology.Hint
		for _, set := range sets {
			inside := m.CPUsOfNodes(set)
			if reusable.IsSubsetOf(inside) &&
				inside.Intersection(free.Union(reusable)).Size() >= n {
				want = append(want, topology.Hint{Nodes: set, Preferred: set.Len() == narrowest})
			}
		}
		byMask := func(a, b topology.Hint) int { return a.Nodes.Compare(b.Nodes) }
		slices.SortFunc(got, byMask)
		if !slices.Equal(got, want) {
			t.Fatalf("%d cpus: got %s, want %s", n, hintStrings(got), hintStrings(want))
		}
	})
}

// 64 nodes have more sets than can be tried; there must still be an answer for each node.
func TestHintsManyNodes(t *testing.T) {
	m := grid{64, 1, 1, 2, 2, nil}.machine(t)
	s := newStatic(t, m, cpuset.New(0))
	busy := m.CPUsOfNodes(topology.NewNodeSet(3, 5, 63))
	free := m.Online().Difference(busy).Difference(cpuset.New(0))
	for _, c := range []struct {
		n, reusable, narrowest, most int
	}{
		{n: 1, reusable: -1, narrowest: 1, most: 2200},
		{n: 4, reusable: -1, narrowest: 1, most: 2200},
		{n: 5, reusable: -1, narrowest: 2, most: 2200},
		{n: 40, reusable: -1, narrowest: 10, most: 2200},
		{n: 100, reusable: 126, narrowest: 25, most: 2200}, // of node 63
		{n: 243, reusable: -1, narrowest: 61, most: 10},
	} {
		pool := free
		if c.reusable >= 0 {
			pool = free.Union(cpuset.New(c.reusable))
		}
		reusable := pool.Difference(free)
		hints := s.Supply(free, reusable, c.n).Hints()
		if len(hints) == 0 || len(hints) > c.most {
			t.Errorf("%d cpus: %d hints", c.n, len(hints))
		}
		narrowest := map[topology.NodeID]int{}
		seen := map[topology.NodeSet]bool{}
		for _, h := range hints {
			if seen[h.Nodes] {
				t.Fatalf("%d cpus: %v comes twice", c.n, h)
			}
			seen[h.Nodes] = true
			inside := m.CPUsOfNodes(h.Nodes)
			if inside.Intersection(pool).Size() < c.n || !reusable.IsSubsetOf(inside) {
				t.Fatalf("%d cpus: %v has no room or lacks %s", c.n, h, reusable)
			}
			if h.Preferred != (h.Nodes.Len() == c.narrowest) {
				t.Fatalf("%d cpus: wrong preference of %v", c.n, h)
			}
			for _, id := range h.Nodes.IDs() {
				if w, ok := narrowest[id]; !ok || h.Nodes.Len() < w {
					narrowest[id] = h.Nodes.Len()
				}
			}
		}
		for _, id := range m.NodeSet().IDs() {
			if want := narrowestAround(m, pool, reusable, c.n, id); narrowest[id] != want {
				t.Errorf("%d cpus: narrowest hint with node %d has %d nodes, want %d",
					c.n, id, narrowest[id], want)
			}
		}
	}
}

// narrowestAround returns the size of the smallest node set with n CPUs of the pool that contains
// the node and those of the reusable CPUs.
func narrowestAround(
	m *topology.Machine, pool, reusable cpuset.CPUSet, n int, node topology.NodeID,
) int {
	set := m.NodesOf(reusable).Union(topology.NewNodeSet(node))
	for {
		inside := m.CPUsOfNodes(set)
		if inside.Intersection(pool).Size() >= n {
			return set.Len()
		}
		roomiest, most := topology.NoNode, -1
		for _, id := range m.NodeSet().Minus(set).IDs() {
			if free := m.CPUsOfNode(id).Intersection(pool).Size(); free > most {
				roomiest, most = id, free
			}
		}
		set = set.Union(topology.NewNodeSet(roomiest))
	}
}
