package topology

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// NodeID is the kernel's number of a NUMA node (/sys/devices/system/node/nodeN).
type NodeID int

// NoNode says that the node is unknown; sysfs writes it as -1.
const NoNode NodeID = -1

// SocketID is the physical package of a CPU (topology/physical_package_id).
type SocketID int

// CoreID numbers physical cores over the whole machine: the lowest CPU id among its threads,
// offline ones included. The kernel's core_id repeats in every package and is not used.
type CoreID int

// L3ID numbers last-level cache groups over the whole machine: the lowest CPU id that shares it.
type L3ID int

// Spec is a machine as data: discovery fills it in, tests write it as a literal, and our YAML holds
// it. NewMachine validates it and makes an immutable Machine.
type Spec struct {
	// Name is for people: "2-socket SMT, NPS2".
	Name string `json:"name,omitempty"`
	// Nodes lists NUMA nodes. Ids may be sparse; a node may have no CPUs or no memory.
	Nodes []Node `json:"nodes"`
	// CPUs lists logical CPUs, online ones and offline ones.
	CPUs []CPU `json:"cpus"`
	// PCI lists PCI functions with their node.
	PCI []PCIDevice `json:"pci,omitempty"`
}

// Node is one NUMA node.
type Node struct {
	ID NodeID `json:"id"`
	// MemoryBytes is MemTotal of the node, huge pages included.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// HugePages lists the pool of each page size.
	HugePages []HugePages `json:"hugePages,omitempty"`
	// Distances is the SLIT row: the distance to each listed node; 10 is local.
	Distances map[NodeID]int `json:"distances,omitempty"`
}

// HugePages is the pool of one page size on one node.
type HugePages struct {
	PageBytes uint64 `json:"pageBytes"`
	Count     uint64 `json:"count"`
}

// CPU is one logical CPU (a hardware thread).
type CPU struct {
	ID     int      `json:"id"`
	Node   NodeID   `json:"node"`
	Socket SocketID `json:"socket"`
	Core   CoreID   `json:"core"`
	L3     L3ID     `json:"l3"`
	// Offline CPUs belong to the machine, but to no cpuset.
	Offline bool `json:"offline,omitempty"`
	// Isolated CPUs are those of isolcpus=: the kernel schedules nothing on them by itself.
	Isolated bool `json:"isolated,omitempty"`
}

// Machine describes the hardware: an immutable value, safe for concurrent use. The caller owns
// slices that its methods return.
type Machine struct {
	name  string
	nodes []Node
	pci   []PCIDevice
	cpuIndex
}

// NewMachine validates spec and returns the machine. The error lists everything that is wrong:
// duplicate ids, CPUs or devices on nodes that do not exist, a core that spans two sockets, no
// online CPU.
func NewMachine(spec Spec) (*Machine, error) {
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("machine %q: %w", spec.Name, err)
	}
	m := &Machine{name: spec.Name, cpuIndex: indexCPUs(spec.CPUs)}
	for _, n := range spec.Nodes {
		m.nodes = append(m.nodes, n.clone())
	}
	slices.SortFunc(m.nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	m.pci = slices.SortedFunc(slices.Values(spec.PCI), func(a, b PCIDevice) int {
		return cmp.Compare(a.Address, b.Address)
	})
	return m, nil
}

// Name returns the machine's name for people.
func (m *Machine) Name() string { return m.name }

// Nodes lists the NUMA nodes by ascending id.
func (m *Machine) Nodes() []Node {
	out := make([]Node, len(m.nodes))
	for i, n := range m.nodes {
		out[i] = n.clone()
	}
	return out
}

// NodeSet returns all node ids.
func (m *Machine) NodeSet() NodeSet { return m.nodesWhere(func(Node) bool { return true }) }

// MemoryNodes returns the nodes that have memory.
func (m *Machine) MemoryNodes() NodeSet {
	return m.nodesWhere(func(n Node) bool { return n.MemoryBytes > 0 })
}

func (m *Machine) nodesWhere(wanted func(Node) bool) NodeSet {
	var b nodeBits
	for _, n := range m.nodes {
		if wanted(n) {
			b.set(int(n.ID))
		}
	}
	return b.freeze()
}

// MemoryBytes returns the memory of all nodes together.
func (m *Machine) MemoryBytes() uint64 {
	var total uint64
	for _, n := range m.nodes {
		total += n.MemoryBytes
	}
	return total
}

// Distance returns the SLIT distance from a to b: that of the firmware, or else 10 on the same node
// and 20 to any other (ACPI's defaults).
func (m *Machine) Distance(a, b NodeID) int {
	at, ok := slices.BinarySearchFunc(m.nodes, a, func(n Node, id NodeID) int {
		return cmp.Compare(n.ID, id)
	})
	if ok {
		if d, ok := m.nodes[at].Distances[b]; ok {
			return d
		}
	}
	if a == b {
		return 10
	}
	return 20
}

// Spec returns the machine as data; NewMachine of it gives an equal machine.
func (m *Machine) Spec() Spec {
	spec := Spec{Name: m.name, Nodes: m.Nodes(), PCI: m.PCI()}
	for _, id := range sortedKeys(m.cpus) {
		spec.CPUs = append(spec.CPUs, m.cpus[id])
	}
	return spec
}

func (s Spec) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	nodes := map[NodeID]bool{}
	for _, n := range s.Nodes {
		if n.ID < 0 {
			wrong("node %d: the id is negative", n.ID)
		}
		if nodes[n.ID] {
			wrong("node %d is listed twice", n.ID)
		}
		nodes[n.ID] = true
	}
	s.validateCPUs(nodes, wrong)
	seen := map[string]bool{}
	for _, d := range s.PCI {
		if seen[d.Address] {
			wrong("PCI device %s is listed twice", d.Address)
		}
		seen[d.Address] = true
		if d.Node != NoNode && !nodes[d.Node] {
			wrong("PCI device %s is on node %d, which does not exist", d.Address, d.Node)
		}
		if d.Path != "" && !ValidPCIPath(d.Path) {
			wrong("PCI device %s: the path %q is none; write it as in sysfs, "+
				"like pci0000:3a/0000:3a:00.0", d.Address, d.Path)
		}
	}
	return errors.Join(errs...)
}

func (s Spec) validateCPUs(nodes map[NodeID]bool, wrong func(format string, args ...any)) {
	cpus := map[int]bool{}
	socketOf := map[CoreID]SocketID{}
	online := 0
	for _, c := range s.CPUs {
		if c.ID < 0 {
			wrong("cpu %d: the id is negative", c.ID)
		}
		if cpus[c.ID] {
			wrong("cpu %d is listed twice", c.ID)
		}
		cpus[c.ID] = true
		if c.Offline {
			continue // the place of an offline CPU is not always known
		}
		online++
		if !nodes[c.Node] {
			wrong("cpu %d is on node %d, which does not exist", c.ID, c.Node)
		}
		if socket, ok := socketOf[c.Core]; ok && socket != c.Socket {
			wrong("core %d is on sockets %d and %d", c.Core, socket, c.Socket)
		}
		socketOf[c.Core] = c.Socket
	}
	if online == 0 {
		wrong("no online cpu")
	}
}

func (n Node) clone() Node {
	n.HugePages = slices.Clone(n.HugePages)
	n.Distances = maps.Clone(n.Distances)
	return n
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
