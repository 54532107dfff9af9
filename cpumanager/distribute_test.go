package cpumanager_test

import (
	"math"
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// Each node gives as many CPUs as the kubelet would take from it.
func TestDistributeAcrossNUMA(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, false)
		o := cpumanager.Options{
			DistributeAcrossNUMA: true, FullPCPUsOnly: rapid.Bool().Draw(t, "whole"),
		}
		if len(m.Sockets()) <= len(m.Nodes()) {
			o.AlignBySocket = rapid.Bool().Draw(t, "socket")
		}
		free, step := drawPool(t, m), 1
		if o.FullPCPUsOnly {
			free, step = wholeCores(m, free), m.ThreadsPerCore()
		}
		n := rapid.IntRange(0, free.Size()/step).Draw(t, "n") * step
		first := cpuset.New(m.Online().List()[0])
		got, err := newStaticWith(t, m, first, o).Choose(free, cpuset.New(), n, anywhere)
		if err != nil || got.Size() != n || !got.IsSubsetOf(free) {
			t.Fatalf("%d of %s: got %s, %v", n, free, got, err)
		}

		var room, taken []int
		used := 0
		nodes := kubeletNodes(m, free)
		var apart func([]int) bool
		if o.AlignBySocket {
			apart = func(set []int) bool { return !inOneSocket(m, nodes, set) }
		}
		for _, node := range nodes {
			room = append(room, free.Intersection(node).Size())
			taken = append(taken, got.Intersection(node).Size())
			if !got.Intersection(node).IsEmpty() {
				used++
			}
		}
		divided, width := kubeletDivided(room, n, step, apart)
		switch {
		case divided == nil: // no even division: packed
			want, err := newStatic(t, m, first).Choose(free, cpuset.New(), n, anywhere)
			if err != nil || !got.Equals(want) {
				t.Fatalf("%d of %v: got %s, %v; packed it is %s", n, room, got, err, want)
			}
		case used != width:
			t.Fatalf("%d of %v: took %v, but %d nodes can share evenly", n, room, taken, width)
		case len(m.Nodes()) <= 8 && !slices.Equal(taken, divided):
			t.Fatalf("%d of %v: took %v, the kubelet takes %v", n, room, taken, divided)
		}
	})
}

// kubeletNodes returns the nodes with free CPUs, those with the fewest first, socket by socket if
// there are fewer sockets than nodes.
func kubeletNodes(m *topology.Machine, free cpuset.CPUSet) (nodes []cpuset.CPUSet) {
	byFree := func(a, b cpuset.CPUSet) int {
		return a.Intersection(free).Size() - b.Intersection(free).Size()
	}
	sockets := []cpuset.CPUSet{m.Online()}
	if len(m.Sockets()) < len(m.Nodes()) {
		sockets = nil
		for _, id := range m.Sockets() {
			sockets = append(sockets, m.CPUsOfSocket(id))
		}
		slices.SortStableFunc(sockets, byFree)
	}
	for _, socket := range sockets {
		var inside []cpuset.CPUSet
		for _, id := range m.NodeSet().IDs() {
			if !m.CPUsOfNode(id).Intersection(socket).Intersection(free).IsEmpty() {
				inside = append(inside, m.CPUsOfNode(id))
			}
		}
		slices.SortStableFunc(inside, byFree)
		nodes = append(nodes, inside...)
	}
	return nodes
}

// kubeletDivided divides n CPUs among nodes as the kubelet does, by KEP-2902: it tries every set of
// nodes, the smallest first, each with the remainder striped over every subset of it, the largest
// first. The smallest standard deviation of what is left wins. It returns nil if nothing fits. With
// align-by-socket (apart is given), no node has to give more than it has, and sets that are not
// apart win.
func kubeletDivided(room []int, n, step int, apart func([]int) bool) (taken []int, width int) {
	for width := 1; width <= min(len(room), n/step); width++ {
		least := math.Inf(1)
		topology.Combinations(len(room), width, func(set []int) bool {
			parts, each, penalty := make([]int, len(room)), n/step/width, 0.0
			for _, at := range set {
				if apart != nil {
					each = min(each, room[at]/step)
				}
			}
			if apart != nil && apart(set) {
				penalty = 1e6
			}
			extra := n/step - each*width
			var spare []int
			for _, at := range set {
				if parts[at] = each * step; parts[at] > room[at] {
					return true
				}
				if room[at]-parts[at] >= step {
					spare = append(spare, at)
				}
			}
			for size := len(spare); size >= 0; size-- {
				topology.Combinations(len(spare), size, func(subset []int) bool {
					striped, left := slices.Clone(parts), extra
					for i := 0; i < n*len(subset); i++ {
						at := spare[subset[i%len(subset)]]
						if left > 0 && room[at]-striped[at] >= step {
							striped[at], left = striped[at]+step, left-1
						}
					}
					if d := deviation(room, striped) + penalty; left == 0 && d < least-1e-9 {
						taken, least = striped, d
					}
					return true
				})
			}
			return true
		})
		if taken != nil {
			return taken, width
		}
	}
	return nil, 0
}

func inOneSocket(m *topology.Machine, nodes []cpuset.CPUSet, set []int) bool {
	for _, id := range m.Sockets() {
		socket := m.CPUsOfSocket(id)
		if !slices.ContainsFunc(set, func(at int) bool { return !nodes[at].IsSubsetOf(socket) }) {
			return true
		}
	}
	return false
}

// deviation returns the standard deviation of what is left.
func deviation(room, taken []int) float64 {
	mean, squares := 0.0, 0.0
	for i := range room {
		mean += float64(room[i]-taken[i]) / float64(len(room))
	}
	for i := range room {
		squares += math.Pow(float64(room[i]-taken[i])-mean, 2)
	}
	return math.Sqrt(squares / float64(len(room)))
}
