package topology

import (
	"cmp"
	"slices"
)

// Strategy chooses between equally good placements.
type Strategy string

const (
	// LowestNodes takes the nodes with the lowest ids, as the kubelet does.
	LowestNodes Strategy = "lowest"
	// Packed takes the nodes with the least left of the requested resources, so that other nodes
	// stay whole for large requests.
	Packed Strategy = "packed"
	// Spread takes the nodes with the most left of the requested resources, so that containers
	// share memory bandwidth and caches with few others.
	Spread Strategy = "spread"
)

// ParseStrategy reads a strategy's name. Empty input is LowestNodes.
func ParseStrategy(s string) (Strategy, error) {
	return parseName(s, "NUMA allocation strategy", LowestNodes, Packed, Spread)
}

// Strict lists the policies that are at least as strict as this one.
func (p Policy) Strict() []Policy {
	all := []Policy{None, BestEffort, Restricted, SingleNUMANode}
	return all[max(0, slices.Index(all, p)):]
}

// Ordered returns the options for a merge in which the order of the listed nodes, not of their ids,
// decides between equally good placements. Nodes that the list lacks come last.
func (o Options) Ordered(nodes []NodeID) Options {
	o.places = &places{at: map[NodeID]int{}}
	for i, id := range nodes {
		o.places.at[id] = i
	}
	return o
}

// places holds the order of nodes.
type places struct{ at map[NodeID]int }

// of returns the set with the nodes' places as ids.
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

// Order sorts nodes, by the strategy, by how much they have left of what the supplies want; nil for
// LowestNodes. For each resource a node counts by its share of the most that any node has left.
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
