package mock

import (
	"fmt"
	"slices"

	"github.com/numalet/numalet/internal/quantity"
	"github.com/numalet/numalet/topology"
)

// Distances between nodes, as firmware reports them.
const (
	local, near, far = 10, 12, 32
)

// Topology returns the machine around the GPUs, for placing pods on it.
func (m *Machine) Topology() (*topology.Machine, error) {
	memory, err := quantity.Parse(m.Host.MemoryPerNode)
	if err != nil {
		return nil, fmt.Errorf("host: memoryPerNode %q: %w", m.Host.MemoryPerNode, err)
	}
	spec := topology.Spec{Name: m.Name}
	nodes := m.Host.Sockets * m.Host.NodesPerSocket
	for id := range nodes {
		distances := map[topology.NodeID]int{}
		for other := range nodes {
			distances[topology.NodeID(other)] = m.distance(id, other)
		}
		spec.Nodes = append(spec.Nodes, topology.Node{ID: topology.NodeID(id),
			MemoryBytes: uint64(memory.Value()), Distances: distances})
	}
	spec.CPUs = m.cpus(nodes)
	for _, g := range m.GPUs {
		way, err := g.place()
		if err != nil {
			return nil, err
		}
		spec.PCI = append(spec.PCI, topology.PCIDevice{Address: g.Bus, Class: "0x030200",
			Vendor: "0x10de", Device: m.Model.Device, Name: m.Model.Name,
			Node: topology.NodeID(way[0])})
	}
	return topology.NewMachine(spec)
}

func (m *Machine) distance(a, b int) int {
	switch {
	case a == b:
		return local
	case a/m.Host.NodesPerSocket == b/m.Host.NodesPerSocket:
		return near
	default:
		return far
	}
}

// cpus numbers the first threads of all cores, then the second ones, as x86 servers do.
func (m *Machine) cpus(nodes int) (cpus []topology.CPU) {
	cores := nodes * m.Host.CoresPerNode
	for thread := range m.Host.ThreadsPerCore {
		for core := range cores {
			node := core / m.Host.CoresPerNode
			cpus = append(cpus, topology.CPU{
				ID: thread*cores + core, Node: topology.NodeID(node),
				Socket: topology.SocketID(node / m.Host.NodesPerSocket),
				Core:   topology.CoreID(core), L3: topology.L3ID(node * m.Host.CoresPerNode),
			})
		}
	}
	return slices.Clip(cpus)
}
