package topology

import (
	"cmp"
	"math"
	"slices"
)

// Common finds a set of nodes that all supplies prefer and that has room for each of them; empty if
// there is none. It is for machines with so many nodes that hints do not list every set.
//
// A set with the least width that a resource needs on the empty machine has some of the resource
// free on each node: without a node that has none it would be narrower still. So Common only looks
// at nodes that can give some of everything, the roomiest first, and skips a node if one with no
// less of anything was tried in vain. If all supplies are additive, this finds a set if there is
// one, within searchSteps; usually it takes as many steps as the set has nodes.
func Common(nodes NodeSet, supplies []Supply) NodeSet {
	width := 0
	for _, s := range supplies {
		if s.Prefers == nil && width > 0 && s.Width != width {
			return NodeSet{}
		}
		if s.Prefers == nil {
			width = s.Width
		}
	}
	if width == 0 {
		return NodeSet{}
	}
	all := func(set NodeSet) bool {
		return set.SubsetOf(nodes) &&
			!slices.ContainsFunc(supplies, func(s Supply) bool { return !s.serves(set) })
	}
	for _, s := range supplies {
		for _, set := range s.Sets {
			if set.Len() == width && all(set) {
				return set
			}
		}
	}
	s := newCommonSearch(nodes, supplies, width)
	s.fits = all
	return s.run()
}

// commonSearch looks for a set of width candidates.
type commonSearch struct {
	width int
	ids   []NodeID
	// For each amount: the wanted amount; the free amount of each candidate; and from each
	// candidate on the sums of the 0 to width largest free amounts.
	amounts []uint64
	free    [][]uint64
	largest [][][]uint64
	// additive: a candidate is skipped if one with no less of anything failed.
	additive bool
	fits     func(NodeSet) bool
	steps    int
	must     NodeSet
}

func newCommonSearch(nodes NodeSet, supplies []Supply, width int) *commonSearch {
	s := &commonSearch{width: width, additive: true, steps: searchSteps}
	for _, supply := range supplies {
		s.must = s.must.Union(supply.Must)
		s.additive = s.additive && supply.Additive && supply.Prefers == nil
		for _, a := range supply.Amounts {
			s.amounts = append(s.amounts, a.Wanted)
		}
	}
	shares := map[NodeID]float64{}
	for _, id := range nodes.IDs() {
		useful := true
		for _, supply := range supplies {
			at, known := slices.BinarySearch(supply.Nodes, id)
			if known {
				shares[id] += supply.share(at)
			}
			for _, a := range supply.Amounts {
				useful = useful && (supply.Prefers != nil || known && a.Free[at] > 0)
			}
		}
		if s.must.Has(id) {
			shares[id] = math.Inf(1) // these come first
		}
		if useful || s.must.Has(id) {
			s.ids = append(s.ids, id)
		}
	}
	slices.SortStableFunc(s.ids, func(a, b NodeID) int { return cmp.Compare(shares[b], shares[a]) })
	for _, supply := range supplies {
		for _, a := range supply.Amounts {
			of := make([]uint64, len(s.ids))
			for i, id := range s.ids {
				if at, known := slices.BinarySearch(supply.Nodes, id); known {
					of[i] = a.Free[at]
				}
			}
			s.free = append(s.free, of)
			s.largest = append(s.largest, largest(of, width))
		}
	}
	return s
}

// largest returns, for each position, the sums of the 0 to width largest values from there on.
func largest(values []uint64, width int) [][]uint64 {
	out := make([][]uint64, len(values)+1)
	var top []uint64 // descending
	for at := len(values); at >= 0; at-- {
		if at < len(values) {
			where, _ := slices.BinarySearchFunc(top, values[at], func(a, b uint64) int {
				return cmp.Compare(b, a)
			})
			top = slices.Insert(top, where, values[at])
			top = top[:min(len(top), width)]
		}
		sums := make([]uint64, width+1)
		for k := range width {
			sums[k+1] = sums[k]
			if k < len(top) {
				sums[k+1] += top[k]
			}
		}
		out[at] = sums
	}
	return out
}

func (s *commonSearch) run() NodeSet {
	first := s.must.Len() // the candidates begin with these
	if first > s.width || first > len(s.ids) || !s.must.SubsetOf(NewNodeSet(s.ids[:first]...)) {
		return NodeSet{}
	}
	sums := make([]uint64, len(s.amounts))
	for need, of := range s.free {
		for _, free := range of[:first] {
			sums[need] += free
		}
	}
	return s.extend(s.must, first, sums)
}

// extend adds candidates from the given position on until the set is wide enough.
func (s *commonSearch) extend(set NodeSet, from int, sums []uint64) NodeSet {
	left := s.width - set.Len()
	if left == 0 {
		if s.fits(set) {
			return set
		}
		return NodeSet{}
	}
	var failed []int
	for at := from; at+left <= len(s.ids) && s.steps > 0; at++ {
		s.steps--
		if !s.mayDo(at, left, sums) || s.additive && s.dominated(at, failed) {
			continue
		}
		next := make([]uint64, len(sums))
		for need := range sums {
			next[need] = sums[need] + s.free[need][at]
		}
		if found := s.extend(set.Union(NewNodeSet(s.ids[at])), at+1, next); !found.IsEmpty() {
			return found
		}
		failed = append(failed, at)
	}
	return NodeSet{}
}

// mayDo reports whether the candidate and the best of those after it could give every amount.
func (s *commonSearch) mayDo(at, left int, sums []uint64) bool {
	for need, sum := range sums {
		if sum+s.free[need][at]+s.largest[need][at+1][left-1] < s.amounts[need] {
			return false
		}
	}
	return true
}

// dominated reports whether one of others has no less of anything.
func (s *commonSearch) dominated(at int, others []int) bool {
	return slices.ContainsFunc(others, func(other int) bool {
		return !slices.ContainsFunc(s.free, func(of []uint64) bool { return of[other] < of[at] })
	})
}
