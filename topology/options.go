package topology

import (
	"fmt"
	"strconv"
)

// Options refine a merge: topologyManagerPolicyOptions of KubeletConfiguration. The zero value sets
// none. max-allowable-numa-nodes has no effect: there is no limit to lift.
type Options struct {
	distances *distances // nil: not requested
	places    *places    // nil: the nodes' ids decide
}

// PreferClosest returns the option prefer-closest-numa-nodes on machine m: between equally wide
// placements the smallest average distance between nodes decides, before node ids do. Source:
// KEP-3545.
func PreferClosest(m *Machine) Options {
	return Options{distances: newDistances(m)}
}

// ParseOptions reads options by name for machine m; values are those of the kubelet's configuration
// file.
func ParseOptions(options map[string]string, m *Machine) (Options, error) {
	var o Options
	for name, value := range options {
		switch name {
		case "prefer-closest-numa-nodes":
			closest, err := strconv.ParseBool(value)
			if err != nil {
				return Options{},
					fmt.Errorf("topology manager policy option %s: %q is not true or false",
						name, value)
			}
			if closest {
				o = PreferClosest(m)
			}
		case "max-allowable-numa-nodes":
		default:
			return Options{}, fmt.Errorf("unknown topology manager policy option %q: "+
				"use one of prefer-closest-numa-nodes, max-allowable-numa-nodes", name)
		}
	}
	return o, nil
}

// distances holds the SLIT matrix in a form that makes the sum over a set of nodes cheap. Equally
// wide sets have equally many pairs, so their sums compare like their averages.
type distances struct {
	at   []int   // row by node id; -1 for unknown nodes
	both [][]int // there and back between two nodes; one way from a node to itself
	// self and pair are the least entries, on the diagonal and off it.
	self, pair int
}

func newDistances(m *Machine) *distances {
	d := &distances{}
	ids := m.NodeSet().IDs()
	for row, a := range ids {
		for len(d.at) <= int(a) {
			d.at = append(d.at, -1)
		}
		d.at[a] = row
		sums := make([]int, len(ids))
		for i, b := range ids {
			sums[i] = m.Distance(a, b)
			if a == b {
				d.self = least(d.self, sums[i])
				continue
			}
			sums[i] += m.Distance(b, a)
			d.pair = least(d.pair, sums[i])
		}
		d.both = append(d.both, sums)
	}
	return d
}

// least returns the lower of two distances, where 0 means none yet.
func least(a, b int) int {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// sum adds up the distances from each node of the set to each, itself included. It is 0 without
// distances; nodes that the machine lacks add nothing.
func (d *distances) sum(set NodeSet) int {
	if d == nil {
		return 0
	}
	total := 0
	var rows []int
	for _, id := range set.IDs() {
		if int(id) >= len(d.at) || d.at[id] < 0 {
			continue
		}
		row := d.both[d.at[id]]
		total += row[d.at[id]]
		for _, other := range rows {
			total += row[other]
		}
		rows = append(rows, d.at[id])
	}
	return total
}

// bound returns a lower bound for sums over width nodes of the machine.
func (d *distances) bound(width int) int {
	if d == nil {
		return 0
	}
	return width*d.self + width*(width-1)/2*d.pair
}
