package devicemanager

import (
	"maps"
	"slices"

	"github.com/numalet/numalet/topology"
)

// counts holds the number of devices for each set of nodes, ordered by set, without the devices
// that have no node.
type counts []onNodes

type onNodes struct {
	nodes topology.NodeSet
	ids   []topology.NodeID // of nodes
	count int
}

// grouping numbers sets of nodes. There are many devices and few sets.
type grouping struct {
	nodes []topology.NodeSet // in the order of their first occurrence
	at    map[topology.NodeSet]int
	last  int // neighbours in a list often have the same nodes
}

// of returns the index of the set in nodes.
func (g *grouping) of(set topology.NodeSet) int {
	if g.last < len(g.nodes) && g.nodes[g.last] == set {
		return g.last
	}
	i, known := g.at[set]
	if !known {
		if g.at == nil {
			g.at = map[topology.NodeSet]int{}
		}
		i = len(g.nodes)
		g.at[set] = i
		g.nodes = append(g.nodes, set)
	}
	g.last = i
	return i
}

// counter counts devices by their nodes.
type counter struct {
	grouping
	devices []int
}

func (c *counter) add(d *Device) {
	i := c.of(d.Nodes)
	if i == len(c.devices) {
		c.devices = append(c.devices, 0)
	}
	c.devices[i]++
}

func (c *counter) counts() (out counts) {
	for i, nodes := range c.nodes {
		if !nodes.IsEmpty() {
			out = append(out, onNodes{nodes: nodes, ids: nodes.IDs(), count: c.devices[i]})
		}
	}
	slices.SortFunc(out, func(a, b onNodes) int { return a.nodes.Compare(b.nodes) })
	return out
}

// in counts the devices with a node in mask.
func (t counts) in(mask topology.NodeSet) int {
	n := 0
	for _, o := range t {
		if !o.nodes.Intersect(mask).IsEmpty() {
			n += o.count
		}
	}
	return n
}

// nodes returns the nodes of all devices.
func (t counts) nodes() topology.NodeSet {
	var all topology.NodeSet
	for _, o := range t {
		all = all.Union(o.nodes)
	}
	return all
}

// fewest returns a lower bound for the number of nodes that together have n devices; it is exact if
// each device has one node.
func (t counts) fewest(n int) int {
	byNode := map[topology.NodeID]int{}
	for _, o := range t {
		for _, id := range o.ids {
			byNode[id] += o.count
		}
	}
	return topology.Fewest(slices.Collect(maps.Values(byNode)), n)
}

// extend adds to mask the node with the most devices that mask does not reach yet, the lowest of
// several. It returns mask if there is no such node.
func (t counts) extend(mask topology.NodeSet) topology.NodeSet {
	var missing []int // devices, by node
	best := topology.NoNode
	for _, o := range t {
		if !o.nodes.Intersect(mask).IsEmpty() {
			continue
		}
		for _, id := range o.ids {
			if short := int(id) + 1 - len(missing); short > 0 {
				missing = append(missing, make([]int, short)...)
			}
			missing[id] += o.count
		}
	}
	for id, count := range missing {
		if count > 0 && (best == topology.NoNode || count > missing[best]) {
			best = topology.NodeID(id)
		}
	}
	return mask.Union(topology.NewNodeSet(best)) // NoNode adds nothing
}
