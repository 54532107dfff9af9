package cpumanager

import (
	"cmp"
	"slices"

	"github.com/numalet/numalet/topology"
)

// unit is one element of the hardware: a socket, node, cache group or core.
type unit struct {
	id    int // of the socket, node, cache group or core
	cpus  []int
	parts []unit // of the next level, none in a core
}

// The levels of a tree from the top, as depth in it. The outer two are sockets and nodes, or nodes
// and sockets.
const (
	outer = iota
	inner
	cache
	core
)

// machineTree divides the online CPUs by socket and node, cache group, core. Where the levels do
// not nest, as when a cache spans nodes, each unit is the part that lies in its parent.
func machineTree(m *topology.Machine) []unit {
	var cpus []topology.CPU
	for _, id := range m.Online().List() {
		c, _ := m.CPU(id)
		cpus = append(cpus, c)
	}
	node := func(c topology.CPU) int { return int(c.Node) }
	socket := func(c topology.CPU) int { return int(c.Socket) }
	levels := []func(topology.CPU) int{
		outer: socket,
		inner: node,
		cache: func(c topology.CPU) int { return int(c.L3) },
		core:  func(c topology.CPU) int { return int(c.Core) },
	}
	if m.NodesOf(m.Online()).Len() <= len(m.Sockets()) {
		levels[outer], levels[inner] = node, socket
	}
	return divide(cpus, levels)
}

// divide groups cpus, which are sorted by id, by the first of levels, and each group by the rest.
func divide(cpus []topology.CPU, levels []func(topology.CPU) int) []unit {
	if len(levels) == 0 {
		return nil
	}
	members := map[int][]topology.CPU{}
	for _, c := range cpus {
		id := levels[0](c)
		members[id] = append(members[id], c)
	}
	units := make([]unit, 0, len(members))
	for id, cpus := range members {
		u := unit{id: id, parts: divide(cpus, levels[1:])}
		for _, c := range cpus {
			u.cpus = append(u.cpus, c.ID)
		}
		units = append(units, u)
	}
	slices.SortFunc(units, func(a, b unit) int { return cmp.Compare(a.id, b.id) })
	return units
}
