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
	// mostMasks bounds the search on wider machines: all pairs of 64 nodes.
	mostMasks = 2048
)

// Hints lists the sets of NUMA nodes from which req can be met, narrow ones first. Source: KEP-693.
//
// A set holds a device that has any of its nodes in it. Reusable devices must all be in the set.
// Preferred are the sets of the least width that could hold N devices if none were taken. If no
// device has a node the answer is nil: no preference. If the request cannot be met it is empty.
// A container that holds devices already (MustInclude) is offered the sets that hold these.
//
// On machines of more than eight nodes only the narrowest sets that meet the request are offered,
// and the set of all nodes. Where there are too many of them to look at, one around each node is
// made of the nodes with the most free devices.
func Hints(nodes topology.NodeSet, req Request) []topology.Hint {
	s, aligned := newSearch(req)
	if !aligned {
		return nil
	}
	hints := []topology.Hint{}
	if s.impossible {
		return hints
	}
	if nodes.Len() > wholeSearch {
		return s.wideHints(nodes)
	}
	least := nodes.Len()
	for _, mask := range subsets(nodes.IDs()) {
		if s.all.in(mask) >= req.N {
			least = min(least, mask.Len())
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
	var all, free, reuse []topology.NodeSet
	s = search{n: req.N}
	reusable, held := set(req.Reusable), set(req.MustInclude)
	usable := 0
	for _, d := range req.Resource.Devices {
		all = append(all, d.Nodes)
		switch {
		case len(held) > 0:
			if held[d.ID] {
				free = append(free, d.Nodes)
				usable++
			}
		case reusable[d.ID]:
			reuse = append(reuse, d.Nodes)
			usable++
		case d.Healthy && !req.Taken.Has(d.ID):
			free = append(free, d.Nodes)
			usable++
		}
	}
	s.impossible = usable < req.N || len(held) > 0 && len(held) != req.N
	s.all, s.free, s.reuse = newTally(all), newTally(free), newTally(reuse)
	return s, len(s.all) > 0
}

func (s search) holds(mask topology.NodeSet) bool {
	reuse := 0
	for _, t := range s.reuse {
		if t.nodes.Intersect(mask).IsEmpty() {
			return false
		}
		reuse += t.count
	}
	return reuse+s.free.in(mask) >= s.n
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

func set(ids []string) map[string]bool {
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}
