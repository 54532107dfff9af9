package cpumanager_test

import (
	"math/bits"
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// All CPUs come from the sockets of the hint's nodes, as far as these suffice.
func TestAlignBySocketChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := someGrid(t)
		g.nodesPerSocket = max(g.nodesPerSocket, 1)
		m := topologytest.Of(t, g.spec())
		free, hint := drawPool(t, m), drawHint(t, m)
		if hint.Any {
			return
		}
		n := rapid.IntRange(0, free.Size()).Draw(t, "n")
		s := newStaticWith(t, m, cpuset.New(0), cpumanager.Options{AlignBySocket: true})
		got, err := s.Choose(free, cpuset.New(), n, hint)
		if err != nil {
			t.Fatal(err)
		}
		near, around := m.CPUsOfNodes(hint.Nodes), cpuset.New()
		for _, id := range m.Sockets() {
			if cpus := m.CPUsOfSocket(id); !cpus.Intersection(near).IsEmpty() {
				around = around.Union(cpus)
			}
		}
		have := free.Intersection(around).Size()
		if took := got.Intersection(around).Size(); took != min(n, have) {
			t.Fatalf("%d of %s, hint %s: got %s, %d of %d in %s", n, free, hint.Nodes, got, took,
				have, around)
		}
	})
}

// Hints with options: every set with room, judged by whole cores or by sockets.
func TestHintsWithOptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		o := cpumanager.Options{FullPCPUsOnly: rapid.Bool().Draw(t, "whole")}
		if len(m.Sockets()) <= m.NodesOf(m.Online()).Len() {
			o.AlignBySocket = rapid.Bool().Draw(t, "socket")
		}
		free := drawPool(t, m)
		n := rapid.IntRange(1, m.Online().Size()).Draw(t, "n")
		s := newStaticWith(t, m, cpuset.New(m.Online().List()[0]), o)
		got := s.Supply(free, cpuset.New(), n).Hints()

		ids := m.NodesOf(m.Online()).IDs()
		room := func(set topology.NodeSet, pool cpuset.CPUSet) bool {
			pool = pool.Intersection(m.CPUsOfNodes(set))
			return pool.Size() >= n && (!o.FullPCPUsOnly || possible(sums(m, pool), n))
		}
		sockets := func(cpus cpuset.CPUSet) (n int) {
			for _, id := range m.Sockets() {
				if !m.CPUsOfSocket(id).Intersection(cpus).IsEmpty() {
					n++
				}
			}
			return n
		}
		narrowest, fewest := len(ids), len(m.Sockets())
		for mask := range uint(1) << len(m.Sockets()) {
			cpus := cpuset.New()
			for i, id := range m.Sockets() {
				if mask>>i&1 == 1 {
					cpus = cpus.Union(m.CPUsOfSocket(id))
				}
			}
			if cpus.Size() >= n {
				fewest = min(fewest, bits.OnesCount(mask))
			}
		}
		var sets []topology.NodeSet
		possibleAtAll := room(topology.NewNodeSet(ids...), m.Online())
		for mask := uint(1); mask < 1<<len(ids); mask++ {
			var members []topology.NodeID
			for i, id := range ids {
				if mask>>i&1 == 1 {
					members = append(members, id)
				}
			}
			set := topology.NewNodeSet(members...)
			if room(set, m.Online()) {
				narrowest = min(narrowest, set.Len())
			}
			sets = append(sets, set)
		}
		var want []topology.Hint
		for _, set := range sets {
			if possibleAtAll && room(set, free) {
				preferred := set.Len() == narrowest ||
					o.AlignBySocket && sockets(m.CPUsOfNodes(set)) == fewest
				want = append(want, topology.Hint{Nodes: set, Preferred: preferred})
			}
		}
		slices.SortFunc(got, func(a, b topology.Hint) int { return a.Nodes.Compare(b.Nodes) })
		if !slices.Equal(got, want) {
			t.Fatalf("%d cpus of %s: got %s, want %s", n, free, hintStrings(got), hintStrings(want))
		}
	})
}

// If there are too many sets to try, those of whole sockets are still offered, each once.
func TestAlignBySocketManyNodes(t *testing.T) {
	for _, c := range []struct {
		machine grid
		n       int
	}{{grid{2, 32, 1, 2, 2, nil}, 100}, {grid{10, 2, 1, 2, 2, nil}, 3}} {
		m := c.machine.machine(t)
		s := newStaticWith(t, m, cpuset.New(0), cpumanager.Options{AlignBySocket: true})
		times := map[topology.Hint]int{}
		for _, hint := range s.Supply(m.Online(), cpuset.New(), c.n).Hints() {
			times[hint]++
		}
		for _, id := range m.Sockets() {
			whole := topology.Hint{Nodes: m.NodesOf(m.CPUsOfSocket(id)), Preferred: true}
			if times[whole] != 1 {
				t.Errorf("%d cpus: %d hints of socket %d", c.n, times[whole], id)
			}
		}
	}
}
