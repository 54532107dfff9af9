// Package exhaustive merges hints literally as KEP-693 and KEP-3545 say: it looks at every pick of
// one hint per resource. Tests and benchmarks compare topology's Merge with it; its time grows with
// the product of the numbers of hints.
package exhaustive

import (
	"math/bits"
	"slices"

	"github.com/numalet/numalet/topology"
)

// Merge corresponds to topology's. distance is nil without prefer-closest-numa-nodes. Nodes and
// hints together may name at most 64 nodes.
func Merge(
	policy topology.Policy, nodes topology.NodeSet, providers [][]topology.ResourceHints,
	distance func(a, b topology.NodeID) int,
) topology.Result {
	if policy == topology.None {
		return topology.Result{Hint: topology.Hint{Any: true}, Admit: true}
	}
	n := newSearch(nodes, providers, distance)
	best := n.best(policy == topology.SingleNUMANode)
	found := topology.Hint{Nodes: n.set(best.mask), Preferred: best.preferred}
	if policy == topology.SingleNUMANode && found.Nodes == nodes {
		found = topology.Hint{Any: true, Preferred: best.preferred}
	}
	return topology.Result{Hint: found, Admit: policy == topology.BestEffort || found.Preferred}
}

// search is one merge. Node sets are masks over the positions in ids, which holds up to 64
// arbitrary ids.
type search struct {
	ids      []topology.NodeID // ascending
	machine  uint64
	lists    [][]hint
	distance func(a, b topology.NodeID) int
}

type hint struct {
	mask           uint64
	any, preferred bool
}

func newSearch(
	nodes topology.NodeSet, providers [][]topology.ResourceHints,
	distance func(a, b topology.NodeID) int,
) search {
	all := nodes
	for _, p := range providers {
		for _, r := range p {
			for _, h := range r.Hints {
				all = all.Union(h.Nodes)
			}
		}
	}
	n := search{ids: all.IDs(), distance: distance}
	at := map[topology.NodeID]int{}
	for i, id := range n.ids {
		at[id] = i
	}
	mask := func(set topology.NodeSet) (m uint64) {
		for _, id := range set.IDs() {
			m |= 1 << at[id]
		}
		return m
	}
	n.machine = mask(nodes)
	for _, p := range providers {
		if len(p) == 0 {
			n.lists = append(n.lists, []hint{{any: true, preferred: true}})
		}
		for _, r := range p {
			var list []hint
			for _, h := range r.Hints {
				list = append(list, hint{mask(h.Nodes), h.Any, h.Preferred})
			}
			if len(list) == 0 {
				list = []hint{{any: true, preferred: r.Hints == nil}}
			}
			n.lists = append(n.lists, list)
		}
	}
	return n
}

func (n search) set(mask uint64) topology.NodeSet {
	var ids []topology.NodeID
	for i, id := range n.ids {
		if mask&(1<<i) != 0 {
			ids = append(ids, id)
		}
	}
	return topology.NewNodeSet(ids...)
}

func (n search) best(single bool) hint {
	lists := slices.Clone(n.lists)
	needed := 0
	for i, list := range lists {
		if single {
			lists[i] = slices.DeleteFunc(slices.Clone(list), func(h hint) bool {
				return !h.preferred || !h.any && bits.OnesCount64(h.mask) != 1
			})
		}
		narrowest := -1
		for _, h := range lists[i] {
			if w := bits.OnesCount64(h.mask); !h.any && (narrowest < 0 || w < narrowest) {
				narrowest = w
			}
		}
		needed = max(needed, narrowest)
	}
	best := hint{mask: n.machine}
	found := false
	var pick func(i int, got hint, first *uint64)
	pick = func(i int, got hint, first *uint64) {
		if i == len(lists) {
			if got.mask != 0 && (!found || n.better(needed, got, best)) {
				best, found = got, true
			}
			return
		}
		for _, h := range lists[i] {
			merged, same := got, first
			merged.preferred = got.preferred && h.preferred
			if !h.any {
				merged.mask &= h.mask
				if same == nil {
					same = &h.mask
				}
				merged.preferred = merged.preferred && h.mask == *same
			}
			pick(i+1, merged, same)
		}
	}
	pick(0, hint{mask: n.machine, preferred: true}, nil)
	return best
}

// better reports whether a is better than b.
func (n search) better(needed int, a, b hint) bool {
	wa, wb := bits.OnesCount64(a.mask), bits.OnesCount64(b.mask)
	switch {
	case a.preferred != b.preferred:
		return a.preferred
	case wa == wb:
		da, db := n.average(a.mask), n.average(b.mask)
		return da < db || da == db && a.mask < b.mask
	case a.preferred, wb > needed:
		return wa < wb
	case wb == needed, wa > needed:
		return false
	default: // b is narrower than needed, a is not wider than needed
		return wa > wb
	}
}

// average returns the mean distance from each node of the mask to each.
func (n search) average(mask uint64) float64 {
	if n.distance == nil {
		return 0
	}
	sum, count := 0.0, 0.0
	for i, a := range n.ids {
		for j, b := range n.ids {
			if mask&(1<<i) != 0 && mask&(1<<j) != 0 {
				sum += float64(n.distance(a, b))
				count++
			}
		}
	}
	return sum / count
}
