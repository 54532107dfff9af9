package deviceplugin

import "github.com/numalet/numalet/topology"

// wideHints are the hints of a machine of many nodes: as many sets of the narrowest width that
// holds the request as can be looked at, else one around each node, and all nodes.
func (s search) wideHints(nodes topology.NodeSet) []topology.Hint {
	least := s.least()
	hints := []topology.Hint{}
	offer := func(mask topology.NodeSet) {
		if s.holds(mask) {
			hints = append(hints, topology.Hint{Nodes: mask, Preferred: mask.Len() == least})
		}
	}
	usable := append(append(tally{}, s.free...), s.reuse...)
	ids := usable.nodes().IDs()
	looked := 0
	width := max(1, usable.fewest(s.n))
	for ; width <= len(ids) && len(hints) == 0 && looked <= mostMasks; width++ {
		for mask := range combinations(ids, width) {
			if looked++; looked > mostMasks {
				break
			}
			offer(mask)
		}
	}
	further := []topology.NodeSet{nodes}
	if looked > mostMasks {
		further = further[:0]
		for _, id := range ids {
			further = append(further, s.around(id))
		}
		further = append(further, nodes)
	}
	offered := make(map[topology.NodeSet]bool, len(hints))
	for _, h := range hints {
		offered[h.Nodes] = true
	}
	for _, mask := range further {
		if !offered[mask] {
			offered[mask] = true
			offer(mask)
		}
	}
	return hints
}

// least is the number of nodes that the request needs on an empty machine. Where devices have
// several nodes each and there are too many sets to look at, it may be too high.
func (s search) least() int {
	greedy := topology.NodeSet{}
	for s.all.in(greedy) < s.n {
		more := s.all.extend(greedy)
		if more == greedy {
			break // some devices have no node
		}
		greedy = more
	}
	looked := 0
	ids := s.all.nodes().IDs()
	for width := max(1, s.all.fewest(s.n)); width < greedy.Len(); width++ {
		for mask := range combinations(ids, width) {
			if looked++; looked > mostMasks {
				return greedy.Len()
			}
			if s.all.in(mask) >= s.n {
				return width
			}
		}
	}
	return greedy.Len()
}

// around is a narrow set that contains the node, has the reusable devices and holds the request,
// if any can.
func (s search) around(id topology.NodeID) topology.NodeSet {
	mask := topology.NewNodeSet(id)
	for _, t := range []tally{s.reuse, s.free} {
		for !s.holds(mask) {
			more := t.extend(mask)
			if more == mask {
				break
			}
			mask = more
		}
	}
	return mask
}

// combinations yields the sets of width ids, by value.
func combinations(ids []topology.NodeID, width int) func(yield func(topology.NodeSet) bool) {
	return func(yield func(topology.NodeSet) bool) {
		at := make([]int, width) // ascending positions in ids
		for i := range at {
			at[i] = i
		}
		members := make([]topology.NodeID, width)
		for {
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

// Need is what req needs of the nodes that Hints prefers, for machines on which Hints cannot list
// all of them; ok is false if there is no preference, or no room on all nodes together.
func Need(req Request) (need topology.Need, ok bool) {
	s, aligned := newSearch(req)
	if !aligned || s.impossible {
		return topology.Need{}, false
	}
	need = topology.Need{
		Amount: uint64(max(s.n, 0)), Free: map[topology.NodeID]uint64{}, Width: s.least(),
		Fits: s.holds, Additive: true,
	}
	for _, t := range append(append(tally{}, s.free...), s.reuse...) {
		for _, id := range t.ids {
			need.Free[id] += uint64(t.count)
		}
		need.Additive = need.Additive && len(t.ids) == 1
	}
	for _, t := range s.reuse {
		if len(t.ids) == 1 {
			need.Must = need.Must.Union(t.nodes)
		}
	}
	return need, true
}
