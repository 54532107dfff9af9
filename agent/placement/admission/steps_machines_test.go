package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// hull is a machine of which parts may be missing.
type hull struct {
	nodes, cores, threads int // cores of each node, threads of each core
	memory, pages         []uint64
	offline               mask
}

// site is a machine with policies on it, and the same in plain numbers for the model.
type site struct {
	hull
	hardware machine.Hardware
	policy   topology.Policy
	scope    topology.Scope
	options  cpumanager.Options
	epoch    int // grows with each change of anything
	text     string

	ownCPUs, ownMemory bool // the static policies
	reserved, isolated mask
	kept               uint64 // bytes of memory of the first node
	maxPods            int64
}

// mask is a set of CPUs below 64.
type mask uint64

func maskOf(cpus cpuset.CPUSet) (m mask) {
	for _, id := range cpus.UnsortedList() {
		m |= 1 << id
	}
	return m
}

func (m mask) has(cpu int) bool { return m>>cpu&1 == 1 }

func newHull(r *rand.Rand) hull {
	h := hull{nodes: 1 + r.IntN(4), threads: []int{2, 1, 4}[r.IntN(3)]}
	h.cores = max(2, 8/h.threads/h.nodes+2*r.IntN(3))
	for h.nodes*h.cores*h.threads > 32 {
		h.nodes = max(1, h.nodes-1)
		h.cores = max(2, h.cores-1)
	}
	h.memory, h.pages = make([]uint64, h.nodes), make([]uint64, h.nodes)
	h.refill(r)
	return h
}

// refill gives the nodes other amounts of memory and huge pages of 2 MiB; the first always has
// some.
func (h *hull) refill(r *rand.Rand) {
	h.memory, h.pages = make([]uint64, h.nodes), make([]uint64, h.nodes)
	for n := range h.nodes {
		h.memory[n] = uint64(6+4*r.IntN(4)) << 30
		h.pages[n] = uint64(256 * r.IntN(4))
		if n > 0 && r.IntN(8) == 0 {
			h.memory[n], h.pages[n] = 0, 0
		}
	}
}

func (h hull) size() int { return h.nodes * h.cores * h.threads }

// place is the core of a CPU, counted over the machine, and its node. Threads of a core are as far
// apart as they can be.
func (h hull) place(cpu int) (core, node int) {
	core = cpu % (h.nodes * h.cores)
	return core, core / h.cores
}

func (h hull) online() mask { return (1<<h.size() - 1) &^ h.offline }

func (h hull) machine() (*topology.Machine, error) {
	spec := topology.Spec{}
	for n := range h.nodes {
		spec.Nodes = append(spec.Nodes, topology.Node{
			ID: topology.NodeID(n), MemoryBytes: h.memory[n],
			HugePages: []topology.HugePages{{PageBytes: 2 << 20, Count: h.pages[n]}},
		})
	}
	for cpu := range h.size() {
		core, node := h.place(cpu)
		spec.CPUs = append(spec.CPUs, topology.CPU{
			ID: cpu, Core: topology.CoreID(core), Node: topology.NodeID(node),
			Socket: topology.SocketID(node / 2), L3: topology.L3ID(core / 2),
			Offline: h.offline.has(cpu),
		})
	}
	return topology.NewMachine(spec)
}

// newSite draws policies for the hull.
func newSite(t *testing.T, r *rand.Rand, h hull, epoch int) *site {
	s := &site{
		hull: h, epoch: epoch, ownCPUs: r.IntN(5) > 0, ownMemory: r.IntN(5) > 1,
		kept: 1 << 30, maxPods: int64(6 + r.IntN(6)),
		policy: []topology.Policy{
			topology.None, topology.BestEffort, topology.Restricted, topology.SingleNUMANode,
		}[r.IntN(4)],
		scope: []topology.Scope{topology.ContainerScope, topology.PodScope}[r.IntN(2)],
		options: cpumanager.Options{
			FullPCPUsOnly: r.IntN(8) == 0, StrictReservation: r.IntN(4) == 0,
			PreferAlignByUncoreCache: r.IntN(5) == 0, DistributeAcrossNUMA: r.IntN(5) == 0,
		},
	}
	first := 0
	for s.offline.has(first) {
		first++
	}
	s.reserved = 1 << first
	if s.ownCPUs && r.IntN(2) == 0 {
		s.isolated = mask(r.Uint64()&r.Uint64()) & s.online() &^ s.reserved
		if s.online() == s.isolated|s.reserved {
			s.isolated = 0
		}
	}
	s.derive(t, nil, r.IntN(3) == 0)
	return s
}

// derive makes the hardware of the numbers; at is the CPU policy that goes on.
func (s *site) derive(t *testing.T, at *cpumanager.Static, closest bool) {
	m, err := s.machine()
	if err != nil {
		t.Fatal(err)
	}
	h := machine.Hardware{Machine: m}
	if closest {
		h.Options = topology.PreferClosest(m)
	}
	switch {
	case at != nil:
		h.CPUs = at.On(m)
	case s.ownCPUs:
		if h.CPUs, err = cpumanager.NewStatic(m, s.reserved.set(), s.options); err != nil {
			t.Fatal(err)
		}
		if h.CPUs, err = h.CPUs.Isolating(s.isolated.set()); err != nil {
			t.Fatal(err)
		}
	}
	if s.ownMemory {
		if h.Memory, err = memory.New(m,
			memory.Amounts{0: {v1.ResourceMemory: s.kept}}); err != nil {
			t.Fatal(err)
		}
	}
	h.Allocatable = nodestatus.Allocatable(m, nodestatus.Reservation{
		MaxPods: s.maxPods,
		Reserved: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(1, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(s.kept), resource.BinarySI),
		},
	})
	s.hardware = h
	s.text = fmt.Sprintf("%d nodes x %d cores x %d threads, offline %s, memory %v, pages %v, "+
		"policy %s, scope %s, static CPUs %v %+v isolated %s, static memory %v, %d pods", s.nodes, s.cores,
		s.threads, s.offline.set(), s.memory, s.pages, s.policy, s.scope, s.ownCPUs, s.options,
		s.isolated.set(), s.ownMemory, s.maxPods)
}

// hotplug is the site after CPUs have come or gone while the agent runs.
func (s *site) hotplug(t *testing.T, offline mask) *site {
	next := *s
	next.offline, next.epoch = offline&^s.reserved, s.epoch+1
	next.derive(t, s.hardware.CPUs, false)
	next.hardware.Options = s.hardware.Options
	return &next
}

func (m mask) set() cpuset.CPUSet {
	var ids []int
	for cpu := range 64 {
		if m.has(cpu) {
			ids = append(ids, cpu)
		}
	}
	return cpuset.New(ids...)
}

// amount is what all pods may request together.
func (s *site) amount() amount {
	a := amount{milli: int64(popcount(s.online()&^s.isolated)-1) * 1000}
	for n := range s.nodes {
		a.memory += int64(s.memory[n])
		a.pages += int64(s.pages[n]) << 21
	}
	a.memory = max(0, a.memory-a.pages-int64(s.kept))
	return a
}

// backed are those of the nodes that have memory.
func (s *site) backed(nodes topology.NodeSet) topology.NodeSet {
	var out []topology.NodeID
	for _, id := range nodes.IDs() {
		if s.memory[id] > 0 {
			out = append(out, id)
		}
	}
	return topology.NewNodeSet(out...)
}

// has is how much of a resource a node gives to containers that get memory of their own.
func (s *site) has(node int, name v1.ResourceName) uint64 {
	pages := s.pages[node] << 21
	if name == "hugepages-2Mi" {
		return pages
	}
	kept := pages
	if node == 0 {
		kept += s.kept
	}
	return s.memory[node] - min(kept, s.memory[node])
}
