package cpumanager

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// maxSets limits how many node sets Hints tries one by one: all of 11 nodes, all pairs of 64.
const maxSets = 2048

// Hints lists the node sets from which n CPUs of free and reusable can be taken, as doc.go
// describes, always in the same order. It is nil if n is 0 (no preference), and
// empty but not nil if no set has room.
//
// For a container that has its CPUs already, pass these as free and none as reusable: the hints
// then repeat what it has.
func (s *Static) Hints(free, reusable cpuset.CPUSet, n int) []topology.Hint {
	if n <= 0 {
		return nil
	}
	q := s.question(free, reusable, n)
	hints := []topology.Hint{}
	offered := map[topology.NodeSet]bool{}
	offer := func(set []int) bool {
		if !q.satisfiedBy(set) {
			return false
		}
		ids := make([]topology.NodeID, len(set))
		for i, at := range set {
			ids[i] = s.nodes[at]
		}
		nodes := topology.NewNodeSet(ids...)
		if !offered[nodes] {
			offered[nodes] = true
			hints = append(hints, topology.Hint{Nodes: nodes, Preferred: s.prefers(q, set)})
		}
		return true
	}

	tried := 0
	width := q.narrowest
	for ; width <= len(s.nodes) && tried < maxSets; width++ {
		topology.Combinations(len(s.nodes), width, func(set []int) bool {
			offer(set)
			tried++
			return tried < maxSets
		})
	}
	if tried < maxSets {
		return hints
	}
	if s.options.AlignBySocket {
		for _, set := range s.sockets {
			offer(set)
		}
	}
	for at := range s.nodes {
		for w := width - 1; w <= len(s.nodes); w++ { // the last width may not be complete
			if set := q.roomiest(at, w); set != nil && offer(set) {
				break
			}
		}
	}
	return hints
}

// prefers tells whether the nodes are as few as can be or, with align-by-socket, their sockets.
func (s *Static) prefers(q question, set []int) bool {
	if len(set) == q.narrowest {
		return true
	}
	if !s.options.AlignBySocket {
		return false
	}
	spanned := 0
	for _, nodes := range s.sockets {
		if slices.ContainsFunc(set, func(at int) bool { return slices.Contains(nodes, at) }) {
			spanned++
		}
	}
	return spanned == q.fewestSockets
}

// socketNodes lists the nodes of each socket, as positions in nodes.
func socketNodes(m *topology.Machine, nodes []topology.NodeID) (sockets [][]int) {
	for _, id := range m.Sockets() {
		var of []int
		for at, node := range nodes {
			if !m.CPUsOfNode(node).Intersection(m.CPUsOfSocket(id)).IsEmpty() {
				of = append(of, at)
			}
		}
		sockets = append(sockets, of)
	}
	return sockets
}

// question is a request for CPUs, by node; nodes are positions in Static.nodes.
type question struct {
	n         int
	available []int   // CPUs free or reusable
	cores     []sizes // their whole cores, when no other CPUs count; nil: all do
	required  []int   // nodes with reusable CPUs
	// The number of nodes, and of sockets, that n CPUs need on an empty machine.
	narrowest, fewestSockets int
}

func (s *Static) question(free, reusable cpuset.CPUSet, n int) question {
	q := question{n: n, available: make([]int, len(s.nodes))}
	pool := free.Union(reusable)
	if s.options.FullPCPUsOnly {
		pool = wholeCores(s.tree, pool)
		q.cores = s.coresByNode(pool)
	}
	var ofNodes, ofSockets []int
	for i, id := range s.nodes {
		cpus := s.machine.CPUsOfNode(id)
		q.available[i] = cpus.Intersection(pool).Size()
		if !cpus.Intersection(reusable).IsEmpty() {
			q.required = append(q.required, i)
		}
		ofNodes = append(ofNodes, cpus.Size())
	}
	for _, id := range s.machine.Sockets() {
		ofSockets = append(ofSockets, s.machine.CPUsOfSocket(id).Size())
	}
	q.narrowest, q.fewestSockets = fewest(ofNodes, n), fewest(ofSockets, n)
	if q.cores != nil {
		q.narrowest = s.narrowestWhole(n, q.narrowest)
	}
	return q
}

// narrowestWhole is the number of nodes, at least width, of which some have whole cores of n CPUs
// together. Cores of several sizes can need more nodes than their number of CPUs says.
func (s *Static) narrowestWhole(n, width int) int {
	capacity := question{n: n, available: make([]int, len(s.nodes))}
	capacity.cores = s.coresByNode(s.machine.Online())
	for i, of := range capacity.cores {
		capacity.available[i] = of.total()
	}
	tried := 0
	for w := width; w <= len(s.nodes) && tried < maxSets; w++ {
		found := false
		topology.Combinations(len(s.nodes), w, func(set []int) bool {
			found = capacity.satisfiedBy(set)
			tried++
			return !found && tried < maxSets
		})
		if found {
			return w
		}
	}
	return width
}

// fewest is how many of the sizes, the largest first, hold n together; all of them if they do not.
func fewest(sizes []int, n int) int {
	slices.SortFunc(sizes, func(a, b int) int { return cmp.Compare(b, a) })
	total, count := 0, 0
	for count < len(sizes) && total < n {
		total += sizes[count]
		count++
	}
	return count
}

// satisfiedBy tells whether the nodes of set, ascending, have room for the request.
func (q question) satisfiedBy(set []int) bool {
	for _, at := range q.required {
		if _, ok := slices.BinarySearch(set, at); !ok {
			return false
		}
	}
	total := 0
	for _, at := range set {
		total += q.available[at]
	}
	if total < q.n || q.cores == nil {
		return total >= q.n
	}
	var together sizes
	for _, at := range set {
		together = together.plus(q.cores[at])
	}
	return together.makeUp(q.n)
}

// roomiest is the set of width nodes that contains node at and has the most CPUs available; nil
// when the required nodes do not leave room for it.
func (q question) roomiest(at, width int) []int {
	set := slices.Clone(q.required)
	if !slices.Contains(set, at) {
		set = append(set, at)
	}
	if len(set) > width {
		return nil
	}
	var others []int
	for i := range q.available {
		if !slices.Contains(set, i) {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int {
		return cmp.Compare(q.available[b], q.available[a])
	})
	set = append(set, others[:width-len(set)]...)
	slices.Sort(set)
	return set
}
