package memory

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// Needs is what the requests need of the nodes that Hints prefers, one for each resource: for
// machines on which Hints cannot list all of them.
func (s *Static) Needs(held, reusable []Block,
	requests map[v1.ResourceName]uint64) []topology.Need {
	if len(requests) == 0 {
		return nil
	}
	q := s.question(held, reusable, requests)
	width := q.narrowest()
	fits := func(nodes topology.NodeSet) bool {
		set := q.positions(nodes)
		return len(set) == nodes.Len() && q.allows(set, nodes) && q.hasRoom(set, nodes)
	}
	var groups []topology.NodeSet
	for _, p := range q.nodes {
		if !p.group.IsEmpty() && !slices.Contains(groups, p.group) {
			groups = append(groups, p.group)
		}
	}
	var needs []topology.Need
	for r, wanted := range q.wanted {
		n := topology.Need{
			Amount: wanted, Free: map[topology.NodeID]uint64{}, Width: width, Sets: groups,
			Fits: fits, Additive: true,
		}
		for _, p := range q.nodes {
			if p.group.IsEmpty() {
				n.Free[p.id] = p.free[r]
			}
		}
		needs = append(needs, n)
	}
	return needs
}
