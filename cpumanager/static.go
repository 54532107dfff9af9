package cpumanager

import (
	"errors"
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// ErrNothingReserved: the static policy needs CPUs that are never given out, or the shared pool
// could become empty.
var ErrNothingReserved = errors.New("[cpumanager] the static policy requires " +
	"systemreserved.cpu + kubereserved.cpu to be greater than zero")

// Static is the static policy on one machine: an immutable value, safe for concurrent use.
type Static struct {
	machine  *topology.Machine
	reserved cpuset.CPUSet
	tree     []unit
	nodes    []topology.NodeID // those with CPUs, ascending
}

// NewStatic makes the policy for machine m, where the reserved CPUs are never given out. Their
// number comes from Reserved, or the operator names them (reservedSystemCPUs).
func NewStatic(m *topology.Machine, reserved cpuset.CPUSet) (*Static, error) {
	if reserved.IsEmpty() {
		return nil, ErrNothingReserved
	}
	if missing := reserved.Difference(m.Online()); !missing.IsEmpty() {
		return nil, fmt.Errorf("reserve cpus %q: %q are not online; online are %q",
			reserved, missing, m.Online())
	}
	return &Static{
		machine:  m,
		reserved: reserved,
		tree:     machineTree(m),
		nodes:    m.NodesOf(m.Online()).IDs(),
	}, nil
}

// Reserved chooses the CPUs to keep for the system: milliCPU/1000 of them, rounded up, by the same
// algorithm as Choose on an empty machine. The error says that the machine has fewer.
func Reserved(m *topology.Machine, milliCPU int64) (cpuset.CPUSet, error) {
	n := int(max(0, milliCPU+999) / 1000)
	if online := m.Online().Size(); n > online {
		return cpuset.New(), fmt.Errorf("reserve %d cpus: the machine has %d online; "+
			"lower systemReserved.cpu or kubeReserved.cpu", n, online)
	}
	return pack(machineTree(m), m.Online(), cpuset.New(), n), nil
}

// Reserved is the set of CPUs that are never given out.
func (s *Static) Reserved() cpuset.CPUSet { return s.reserved }

// Free is the set of CPUs that can be given out while the assigned ones are taken.
func (s *Static) Free(assigned cpuset.CPUSet) cpuset.CPUSet {
	return s.machine.Online().Difference(s.reserved).Difference(assigned)
}

// Shared is the set of CPUs for all containers without CPUs of their own: the online ones that
// are not assigned. Reserved CPUs are shared.
func (s *Static) Shared(assigned cpuset.CPUSet) cpuset.CPUSet {
	return s.machine.Online().Difference(assigned)
}

// ShortageError says that fewer CPUs are free than were asked for. The text is the kubelet's.
type ShortageError struct{ Requested, Available int }

func (e *ShortageError) Error() string {
	return fmt.Sprintf("not enough cpus available to satisfy request: requested=%d, available=%d",
		e.Requested, e.Available)
}

// Choose picks n CPUs from free and reusable, as doc.go describes: inside the nodes of hint as far
// as these have enough, reusable ones (from init containers of the same pod) before free ones. The
// same arguments give the same CPUs. CPUs that are not online are not picked.
func (s *Static) Choose(
	free, reusable cpuset.CPUSet, n int, hint topology.Hint,
) (cpuset.CPUSet, error) {
	online := s.machine.Online()
	reusable = reusable.Intersection(online)
	pool := free.Intersection(online).Union(reusable)
	if n > pool.Size() {
		return cpuset.New(), &ShortageError{Requested: n, Available: pool.Size()}
	}
	var areas []cpuset.CPUSet
	if !hint.Any {
		areas = append(areas, s.machine.CPUsOfNodes(hint.Nodes))
	}
	n = max(n, 0)
	taken := cpuset.New()
	for _, area := range append(areas, online) {
		for _, from := range []cpuset.CPUSet{reusable, pool} {
			from = from.Intersection(area).Difference(taken)
			held := taken.Intersection(reusable)
			more := min(n-taken.Size(), from.Size())
			taken = taken.Union(pack(s.tree, from, held, more))
		}
	}
	return taken, nil
}
