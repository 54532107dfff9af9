package rig

import (
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// spot is the location of a pod or a container.
type spot struct {
	// nodes are the nodes of its CPUs, memory and devices. If a device has several nodes, one counts,
	// if possible one that the others use.
	nodes topology.NodeSet
	// aligned is set if one node can have all of it; it is not set if nothing has a node.
	aligned bool
}

// spotOf returns the location of containers taken as one.
func spotOf(m *topology.Machine, containers ...allocation.Container) spot {
	var s spot
	common, some := topology.NodeSet{}, false
	meet := func(nodes topology.NodeSet) {
		if !some {
			common, some = nodes, true
			return
		}
		common = common.Intersect(nodes)
	}
	apart := false
	var vague []topology.NodeSet
	for _, c := range containers {
		if !c.CPUs().IsEmpty() {
			nodes := m.NodesOf(c.CPUs())
			apart = apart || nodes.Len() > 1
			s.nodes = s.nodes.Union(nodes)
			meet(nodes)
		}
		for _, b := range c.Memory() {
			if b.Size > 0 {
				apart = apart || b.Nodes.Len() > 1
				s.nodes = s.nodes.Union(b.Nodes)
				meet(b.Nodes)
			}
		}
		for _, d := range devicesOf(c) {
			for i := range d.IDs {
				switch nodes := d.NodesOf(i); nodes.Len() {
				case 0:
				case 1:
					s.nodes = s.nodes.Union(nodes)
					meet(nodes)
				default:
					vague = append(vague, nodes)
					meet(nodes)
				}
			}
		}
	}
	for _, nodes := range vague {
		if nodes.Intersect(s.nodes).IsEmpty() {
			s.nodes = s.nodes.Union(topology.NewNodeSet(nodes.IDs()[0]))
		}
	}
	s.aligned = some && !apart && !common.IsEmpty()
	return s
}

// span holds the distances between the nodes of a set.
type span struct {
	mean float64
	most int
}

// spanOf averages the distances between different nodes; for one node it is the distance to itself.
func spanOf(m *topology.Machine, nodes topology.NodeSet) span {
	ids := nodes.IDs()
	if len(ids) == 1 {
		d := m.Distance(ids[0], ids[0])
		return span{float64(d), d}
	}
	var s span
	pairs := 0
	for _, a := range ids {
		for _, b := range ids {
			if a != b {
				s.mean += float64(m.Distance(a, b))
				s.most = max(s.most, m.Distance(a, b))
				pairs++
			}
		}
	}
	s.mean /= float64(pairs)
	return s
}
