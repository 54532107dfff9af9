package deviceplugin

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/numalet/numalet/topology"
)

const (
	// wholeSearch is the number of NUMA nodes up to which every set of nodes is offered. It is the
	// kubelet's limit for topology alignment: up to here the hints are exactly its own.
	wholeSearch = 8
	// mostMasks bounds the search on wider machines.
	mostMasks = 1 << 14
)

// Hints lists the sets of NUMA nodes from which req can be met, narrow ones first. Source: KEP-693.
//
// A set holds a device that has any of its nodes in it. Reusable devices must all be in the set.
// Preferred are the sets of the least width that could hold N devices if none were taken. If no
// device has a node the answer is nil: no preference. If the request cannot be met it is empty.
// A container that holds devices already (MustInclude) is offered the sets that hold these.
//
// On machines of more than eight nodes only the narrowest sets that meet the request are offered,
// and the set of all nodes.
func Hints(nodes topology.NodeSet, req Request) []topology.Hint {
	s, aligned := newSearch(req)
	if !aligned {
		return nil
	}
	hints := []topology.Hint{}
	if s.impossible {
		return hints
	}
	least := nodes.Len()
	for mask := range s.masks(nodes) {
		if mask.Len() < least && s.all.in(mask) >= req.N {
			least = mask.Len()
		}
		if s.holds(mask) {
			hints = append(hints, topology.Hint{Nodes: mask})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Len() == least
	}
	return hints
}

// tally counts devices by the set of nodes they have; devices without nodes are not in it.
type tally map[topology.NodeSet]int

func (t tally) add(d Device) {
	if !d.Nodes.IsEmpty() {
		t[d.Nodes]++
	}
}

// in counts the devices with a node in mask.
func (t tally) in(mask topology.NodeSet) int {
	n := 0
	for nodes, count := range t {
		if !nodes.Intersect(mask).IsEmpty() {
			n += count
		}
	}
	return n
}

// search is a request, counted.
type search struct {
	n int
	// all devices, whether free or not; those that are free; and those that can be reused.
	all, free, reuse tally
	// impossible: too few devices on all nodes together.
	impossible bool
}

// newSearch counts the devices of a request; aligned is false when no device has a node.
func newSearch(req Request) (s search, aligned bool) {
	s = search{n: req.N, all: tally{}, free: tally{}, reuse: tally{}}
	reusable, held := set(req.Reusable), set(req.MustInclude)
	usable := 0
	for _, d := range req.Resource.Devices {
		s.all.add(d)
		switch {
		case len(held) > 0:
			if held[d.ID] {
				s.free.add(d)
				usable++
			}
		case reusable[d.ID]:
			s.reuse.add(d)
			usable++
		case d.Healthy && !req.Taken.Has(d.ID):
			s.free.add(d)
			usable++
		}
	}
	s.impossible = usable < req.N || len(held) > 0 && len(held) != req.N
	return s, len(s.all) > 0
}

func (s search) holds(mask topology.NodeSet) bool {
	reuse := 0
	for nodes, count := range s.reuse {
		if nodes.Intersect(mask).IsEmpty() {
			return false
		}
		reuse += count
	}
	return reuse+s.free.in(mask) >= s.n
}

// masks yields the sets of nodes to look at, by width and then by value.
func (s search) masks(nodes topology.NodeSet) func(yield func(topology.NodeSet) bool) {
	ids := nodes.IDs()
	return func(yield func(topology.NodeSet) bool) {
		if len(ids) <= wholeSearch {
			for _, mask := range subsets(ids) {
				if !yield(mask) {
					return
				}
			}
			return
		}
		s.narrowest(ids, yield)
		yield(nodes)
	}
}

// narrowest yields the sets of nodes with devices, width after width, until a width had one that
// holds the request; the set of all nodes is left to the caller.
func (s search) narrowest(ids []topology.NodeID, yield func(topology.NodeSet) bool) {
	total := len(ids)
	ids = slices.DeleteFunc(slices.Clone(ids), func(id topology.NodeID) bool {
		return s.all.in(topology.NewNodeSet(id)) == 0
	})
	looked := 0
	for width := 1; width <= len(ids) && width < total; width++ {
		found := false
		for mask := range combinations(ids, width) {
			if looked++; looked > mostMasks || !yield(mask) {
				return
			}
			found = found || s.holds(mask)
		}
		if found {
			return
		}
	}
}

// subsets lists every non-empty set of ids, by width and then by value.
func subsets(ids []topology.NodeID) []topology.NodeSet {
	out := make([]topology.NodeSet, 0, 1<<len(ids))
	for b := uint(1); b < 1<<len(ids); b++ {
		var members []topology.NodeID
		for rest := b; rest != 0; rest &= rest - 1 {
			members = append(members, ids[bits.TrailingZeros(rest)])
		}
		out = append(out, topology.NewNodeSet(members...))
	}
	slices.SortFunc(out, func(a, b topology.NodeSet) int {
		return cmp.Or(cmp.Compare(a.Len(), b.Len()), a.Compare(b))
	})
	return out
}

// combinations yields the sets of width ids, by value.
func combinations(ids []topology.NodeID, width int) func(yield func(topology.NodeSet) bool) {
	return func(yield func(topology.NodeSet) bool) {
		at := make([]int, width) // ascending positions in ids
		for i := range at {
			at[i] = i
		}
		for {
			members := make([]topology.NodeID, width)
			for i, p := range at {
				members[i] = ids[p]
			}
			if !yield(topology.NewNodeSet(members...)) || !advance(at, len(ids)) {
				return
			}
		}
	}
}

// advance steps to the next combination of n positions: the lowest position that can move does,
// and those below it start again.
func advance(at []int, n int) bool {
	for i := range at {
		limit := n
		if i+1 < len(at) {
			limit = at[i+1]
		}
		if at[i]+1 < limit {
			at[i]++
			for j := range i {
				at[j] = j
			}
			return true
		}
	}
	return false
}

func set(ids []string) map[string]bool {
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}
