package memory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology"
)

// ErrNothingReserved: the static policy requires reserved memory. The text is the kubelet's.
var ErrNothingReserved = errors.New(
	"[memorymanager] you should specify the system reserved memory")

// Amounts are bytes by NUMA node and resource ("memory", "hugepages-2Mi", ...).
type Amounts map[topology.NodeID]map[v1.ResourceName]uint64

// Block records what one container holds of one resource: Size bytes, somewhere on Nodes. A block
// of an init container may be smaller than at first, or empty, after later containers have reused
// it.
type Block struct {
	Nodes    topology.NodeSet
	Resource v1.ResourceName
	Size     uint64
}

// Static is the static policy on one machine: an immutable value, safe for concurrent use.
type Static struct {
	nodes  []node // all of the machine, ascending
	backed topology.NodeSet
}

// node is the memory of one NUMA node, free or held.
type node struct {
	id                           topology.NodeID
	total, reserved, allocatable map[v1.ResourceName]uint64
}

// New returns the policy for machine m, where pods do not get the reserved amounts. It refuses
// reservations without memory (ErrNothingReserved), on nodes that do not exist, or of more than the
// node has.
//
// Memory in huge pages is not "memory". If the pools grow into the reserved memory, none is left.
func New(m *topology.Machine, reserved Amounts) (*Static, error) {
	if err := checkReservedOn(m, reserved); err != nil {
		return nil, err
	}
	s := newStatic(m, reserved)
	for _, n := range s.nodes {
		for name, total := range n.total {
			if r := n.reserved[name]; r > total {
				return nil, fmt.Errorf("reserve %d bytes of %s on NUMA node %d: it has %d; "+
					"lower reservedMemory of this node", r, name, n.id, total)
			}
		}
	}
	return s, nil
}

// Unreserved returns the policy for a machine without reservations, for reporting only: nothing may
// be allocated from it (ErrNothingReserved).
func Unreserved(m *topology.Machine) *Static { return newStatic(m, nil) }

func newStatic(m *topology.Machine, reserved Amounts) *Static {
	s := &Static{backed: m.MemoryNodes()}
	for _, of := range m.Nodes() {
		s.nodes = append(s.nodes, newNode(of, reserved[of.ID]))
	}
	return s
}

func checkReservedOn(m *topology.Machine, reserved Amounts) error {
	nodes := m.NodeSet()
	memory := uint64(0)
	for _, id := range sortedKeys(reserved) {
		if !nodes.Has(id) {
			return fmt.Errorf("the reserved memory configuration references a NUMA node %d that "+
				"does not exist on this machine", id)
		}
		memory += reserved[id][v1.ResourceMemory]
	}
	if memory == 0 {
		return ErrNothingReserved
	}
	return nil
}

func newNode(of topology.Node, reserved map[v1.ResourceName]uint64) node {
	n := node{
		id:          of.ID,
		total:       map[v1.ResourceName]uint64{v1.ResourceMemory: of.MemoryBytes},
		reserved:    map[v1.ResourceName]uint64{},
		allocatable: map[v1.ResourceName]uint64{},
	}
	for name, size := range reserved {
		if size == 0 {
			continue
		}
		n.reserved[name] = size
		n.total[name] += 0 // so that New sees a reservation of a missing resource
	}
	inPages := uint64(0)
	for _, pool := range of.HugePages {
		size := pool.PageBytes * pool.Count
		n.total[pageResource(pool.PageBytes)] += size
		inPages += size
	}
	for name, total := range n.total {
		taken := n.reserved[name]
		if name == v1.ResourceMemory {
			taken += inPages
		}
		n.allocatable[name] = total - min(total, taken)
	}
	return n
}

// pageResource returns the resource of huge pages of this size: "hugepages-2Mi".
func pageResource(pageBytes uint64) v1.ResourceName {
	size := resource.NewQuantity(int64(pageBytes), resource.BinarySI)
	return v1.ResourceName(v1.ResourceHugePagesPrefix + size.String())
}

// Allocatable returns what each node can give to pods if they hold nothing yet, without empty nodes
// and resources. The caller owns the result.
func (s *Static) Allocatable() Amounts {
	out := Amounts{}
	for _, n := range s.nodes {
		for name, size := range n.allocatable {
			if size == 0 {
				continue
			}
			if out[n.id] == nil {
				out[n.id] = map[v1.ResourceName]uint64{}
			}
			out[n.id][name] = size
		}
	}
	return out
}

// AllocatableBlocks returns Allocatable as blocks with one node each, by node and resource.
func (s *Static) AllocatableBlocks() (out []Block) {
	amounts := s.Allocatable()
	for _, id := range sortedKeys(amounts) {
		for _, name := range sortedKeys(amounts[id]) {
			out = append(out, Block{topology.NewNodeSet(id), name, amounts[id][name]})
		}
	}
	return out
}

// Mems returns the nodes for cpuset.mems of a container that holds the blocks; empty: any node. It
// omits nodes without memory, which the kernel would refuse.
func (s *Static) Mems(blocks []Block) topology.NodeSet {
	var nodes topology.NodeSet
	for _, b := range blocks {
		nodes = nodes.Union(b.Nodes)
	}
	return nodes.Intersect(s.backed)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
