package devicemanager

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology"
)

// Supply describes the sets of NUMA nodes from which req can be met. ok is false if no device has a
// node: then there is no preference. A request that cannot be met has no set. Source: KEP-693.
//
// A device counts for a set that holds any of its nodes. Every reusable device must count. A set is
// preferred if it has the least width that could hold N devices if none were taken. A container
// that already holds devices (MustInclude) gets the sets that hold those.
//
// On machines with more than eight nodes only the narrowest sets that meet the request are offered,
// and the set of all nodes. If there are too many such sets to look at, one is built around each
// node from the nodes with the most free devices.
func Supply(nodes topology.NodeSet, req Request) (supply topology.Supply, ok bool) {
	s, aligned := newSearch(req)
	if !aligned || s.impossible {
		return topology.Supply{}, aligned
	}
	supply = topology.Supply{
		Nodes: nodes.IDs(), Width: s.least(), Additive: true,
		Holds: func(set topology.NodeSet, _ []int) bool { return s.holds(set) },
	}
	usable := append(append(counts{}, s.free...), s.reuse...)
	supply.Least = usable.fewest(s.n)
	if nodes.Len() > topology.EverySet {
		supply.Nodes, supply.NarrowOnly = usable.nodes().Intersect(nodes).IDs(), true
		if s.holds(nodes) {
			supply.Sets = []topology.NodeSet{nodes}
		}
	}
	free := make([]uint64, len(supply.Nodes))
	for _, t := range usable {
		for _, id := range t.ids {
			if at, known := slices.BinarySearch(supply.Nodes, id); known {
				free[at] += uint64(t.count)
			}
		}
		supply.Additive = supply.Additive && len(t.ids) == 1
	}
	supply.Amounts = []topology.Amount{{Wanted: uint64(max(s.n, 0)), Free: free}}
	for _, t := range s.reuse {
		if len(t.ids) == 1 {
			supply.Must = supply.Must.Union(t.nodes)
		}
	}
	return supply, true
}

// SupplyOf is Supply where there is no choice: it has the narrowest sets that hold these devices, and
// no others. They are preferred if that many devices could not be had on fewer nodes. Devices
// without a node are no matter; ok is false if all are such.
func SupplyOf(nodes topology.NodeSet, of Resource, ids []string) (supply topology.Supply, ok bool) {
	var somewhere []string
	for _, id := range ids {
		if d, found := of.Find(id); found && !d.Nodes.IsEmpty() {
			somewhere = append(somewhere, id)
		}
	}
	if len(somewhere) == 0 {
		return topology.Supply{}, false
	}
	supply, ok = Supply(nodes, Request{
		Resource: of, N: len(somewhere), MustInclude: somewhere,
	})
	supply.NarrowOnly, supply.Sets = true, nil
	return supply, ok
}

// search holds the counted devices of a request.
type search struct {
	n int
	// all counts every device, free the free ones, reuse those that can be reused.
	all, free, reuse counts
	// impossible: all nodes together have too few devices.
	impossible bool
}

// newSearch counts the devices of a request; aligned is false if no device has a node.
func newSearch(req Request) (s search, aligned bool) {
	var all, free, reuse counter
	s = search{n: req.N}
	reusable, held := sets.New(req.Reusable...), sets.New(req.MustInclude...)
	usable := 0
	for _, d := range req.Resource.Devices {
		all.add(d)
		switch {
		case len(held) > 0:
			if held.Has(d.ID) {
				free.add(d)
				usable++
			}
		case reusable.Has(d.ID):
			reuse.add(d)
			usable++
		case d.Offered() && !req.Taken.Has(d.ID):
			free.add(d)
			usable++
		}
	}
	s.impossible = usable < req.N || len(held) > 0 && len(held) != req.N
	s.all, s.free, s.reuse = all.counts(), free.counts(), reuse.counts()
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

// least returns the number of nodes that the request needs on an empty machine. It may be too high
// if devices have several nodes each and there are too many sets to look at.
func (s search) least() int {
	greedy := topology.NodeSet{}
	for s.all.in(greedy) < s.n {
		more := s.all.extend(greedy)
		if more == greedy {
			break // some devices have no node
		}
		greedy = more
	}
	ids := s.all.nodes().IDs()
	members := make([]topology.NodeID, 0, len(ids))
	width, sure := topology.Narrowest(len(ids), max(1, s.all.fewest(s.n)), greedy.Len(),
		func(at []int) bool {
			members = members[:0]
			for _, i := range at {
				members = append(members, ids[i])
			}
			return s.all.in(topology.NewNodeSet(members...)) >= s.n
		})
	if !sure {
		return greedy.Len()
	}
	return width
}
