package topology

import (
	"cmp"
	"slices"
)

// Strategy says which of equally good placements is taken.
type Strategy string

const (
	// LowestNodes takes the nodes with the lowest ids, as the kubelet does.
	LowestNodes Strategy = "lowest"
	// Packed takes the nodes with the least left of what is asked for, so that others stay whole
	// for requests that are large.
	Packed Strategy = "packed"
	// Spread takes the nodes with the most left of what is asked for, so that containers share
	// memory bandwidth and caches with few others.
	Spread Strategy = "spread"
)

// ParseStrategy reads a strategy's name. Empty input is LowestNodes.
func ParseStrategy(s string) (Strategy, error) {
	return parseName(s, "NUMA allocation strategy", LowestNodes, Packed, Spread)
}

// Strict lists the policies that place no pod less well than this one does: it and the stricter
// ones.
func (p Policy) Strict() []Policy {
	all := []Policy{None, BestEffort, Restricted, SingleNUMANode}
	return all[max(0, slices.Index(all, p)):]
}

// Ordered is the same options for a merge in which the order of the nodes in the list decides
// between equally good placements, in place of that of their ids. Nodes that the list lacks come
// last.
func (o Options) Ordered(nodes []NodeID) Options {
	o.places = &places{at: map[NodeID]int{}}
	for i, id := range nodes {
		o.places.at[id] = i
	}
	return o
}

// places are nodes in an order of their own.
type places struct{ at map[NodeID]int }

// of is the set as if the nodes' ids were their places.
func (p *places) of(set NodeSet) NodeSet {
	if p == nil {
		return set
	}
	var out nodeBits
	for _, id := range set.IDs() {
		place, listed := p.at[id]
		if !listed {
			place = len(p.at) + int(id)
		}
		out.set(place)
	}
	return out.freeze()
}

// Order sorts nodes by how much they have left of what the supplies want, by the strategy; nil for
// LowestNodes. Of each resource a node counts by its part of what the node with the most has left.
func (s Strategy) Order(nodes NodeSet, supplies []Supply) []NodeID {
	if s != Packed && s != Spread {
		return nil
	}
	left := map[NodeID]float64{}
	for _, supply := range supplies {
		for _, a := range supply.Amounts {
			if a.Wanted == 0 || len(a.Free) == 0 {
				continue
			}
			most := float64(max(1, slices.Max(a.Free)))
			for i, id := range supply.Nodes {
				left[id] += float64(a.Free[i]) / most
			}
		}
	}
	ids := nodes.IDs()
	slices.SortStableFunc(ids, func(a, b NodeID) int {
		if s == Spread {
			a, b = b, a
		}
		return cmp.Compare(left[a], left[b])
	})
	return ids
}
