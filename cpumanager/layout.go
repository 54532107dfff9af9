package cpumanager

import (
	"cmp"
	"slices"

	"github.com/numalet/numalet/topology"
)

// layout describes a machine's online CPUs in bitmaps. It is immutable.
type layout struct {
	machine *topology.Machine
	online  bitmap
	tree    []*unit
	// nodeLevel is outer or inner; sockets have the other level.
	nodeLevel int

	cores   []*unit // all of the tree
	sizes   sizes   // of the cores
	nodes   []numaNode
	sockets []socket
}

// unit is one unit of the hardware: a socket, node, cache group or core.
type unit struct {
	id    int // of the socket, node, cache group or core
	cpus  mask
	size  int     // number of cpus
	parts []*unit // of the next level; a core has none
	cores []*unit // all inside; a core has itself
}

// numaNode is a node with CPUs; layout lists nodes by ascending id.
type numaNode struct {
	id    topology.NodeID
	set   topology.NodeSet // only this node
	cpus  mask
	cores []*unit
}

type socket struct {
	cpus  mask
	nodes []int // positions in layout.nodes
	set   topology.NodeSet
}

// Levels are depths in the tree. The outer two are sockets and nodes, or nodes and sockets.
const (
	outer = iota
	inner
	cache
	core
)

func newLayout(m *topology.Machine) *layout {
	online := m.Online().List()
	l := &layout{machine: m, online: newBitmap(online[len(online)-1])}
	cpus := make([]topology.CPU, len(online))
	for i, id := range online {
		l.online[id/64] |= 1 << (id % 64)
		cpus[i], _ = m.CPU(id)
	}
	levels := []func(topology.CPU) int{
		outer: func(c topology.CPU) int { return int(c.Socket) },
		inner: func(c topology.CPU) int { return int(c.Node) },
		cache: func(c topology.CPU) int { return int(c.L3) },
		core:  func(c topology.CPU) int { return int(c.Core) },
	}
	l.nodeLevel = inner
	if m.NodesOf(m.Online()).Len() <= len(m.Sockets()) {
		levels[outer], levels[inner] = levels[inner], levels[outer]
		l.nodeLevel = outer
	}
	l.tree = l.divide(cpus, levels)
	for _, u := range l.tree {
		l.cores = append(l.cores, u.cores...)
	}
	l.sizes = coreSizes(l.cores, l.online)
	l.index()
	return l
}

// index sets the nodes and sockets.
func (l *layout) index() {
	m := l.machine
	for _, id := range m.NodesOf(m.Online()).IDs() {
		n := numaNode{id: id, set: topology.NewNodeSet(id)}
		part := l.online.only(m.CPUsOfNode(id))
		n.cpus = part.mask()
		for _, core := range l.cores {
			if part.contains(core.cpus) {
				n.cores = append(n.cores, core)
			}
		}
		l.nodes = append(l.nodes, n)
	}
	for _, id := range m.Sockets() {
		part := l.online.only(m.CPUsOfSocket(id))
		s := socket{cpus: part.mask()}
		for at, n := range l.nodes {
			if part.count(n.cpus) > 0 {
				s.nodes, s.set = append(s.nodes, at), s.set.Union(n.set)
			}
		}
		l.sockets = append(l.sockets, s)
	}
}

// divide groups cpus, which are sorted by id, by the first of levels, and each group by the rest.
// If the levels do not nest, as when a cache spans nodes, a unit is the part inside its parent.
func (l *layout) divide(cpus []topology.CPU, levels []func(topology.CPU) int) []*unit {
	if len(levels) == 0 {
		return nil
	}
	members := map[int][]topology.CPU{}
	for _, c := range cpus {
		id := levels[0](c)
		members[id] = append(members[id], c)
	}
	units := make([]*unit, 0, len(members))
	for id, cpus := range members {
		u := &unit{id: id, size: len(cpus), parts: l.divide(cpus, levels[1:])}
		all := make(bitmap, len(l.online))
		for _, c := range cpus {
			all[c.ID/64] |= 1 << (c.ID % 64)
		}
		u.cpus = all.mask()
		for _, part := range u.parts {
			u.cores = append(u.cores, part.cores...)
		}
		if len(u.parts) == 0 {
			u.cores = []*unit{u}
		}
		units = append(units, u)
	}
	slices.SortFunc(units, func(a, b *unit) int { return cmp.Compare(a.id, b.id) })
	return units
}
