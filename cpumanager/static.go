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
	options  Options
	tree     []unit
	nodes    []topology.NodeID // those with CPUs, ascending
	sockets  [][]int           // the nodes of each, as positions in nodes
}

// NewStatic makes the policy for machine m, where the reserved CPUs are never given out. Their
// number comes from Reserved, or the operator names them (reservedSystemCPUs). It refuses options
// that the machine cannot follow.
func NewStatic(m *topology.Machine, reserved cpuset.CPUSet, o Options) (*Static, error) {
	if reserved.IsEmpty() {
		return nil, ErrNothingReserved
	}
	if missing := reserved.Difference(m.Online()); !missing.IsEmpty() {
		return nil, fmt.Errorf("reserve cpus %q: %q are not online; online are %q",
			reserved, missing, m.Online())
	}
	nodes := m.NodesOf(m.Online()).IDs()
	if o.StrictReservation && reserved.Size() == m.Online().Size() {
		return nil, fmt.Errorf("%s: all online cpus, %q, are reserved and none is left for pods; "+
			"reserve fewer", OptionStrictReservation, reserved)
	}
	if n := len(m.Sockets()); o.AlignBySocket && n > len(nodes) {
		return nil, fmt.Errorf("%s: the machine has %d sockets and only %d NUMA nodes with cpus, so "+
			"that a node says nothing of the socket; turn the option off",
			OptionAlignBySocket, n, len(nodes))
	}
	return &Static{
		machine: m, reserved: reserved, options: o, tree: machineTree(m), nodes: nodes,
		sockets: socketNodes(m, nodes),
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
	return pack(machineTree(m), stock{free: m.Online()}, quota{left: n}, Options{}), nil
}

// Reserved is the set of CPUs that are never given out.
func (s *Static) Reserved() cpuset.CPUSet { return s.reserved }

// Free is the set of CPUs that can be given out while the assigned ones are taken.
func (s *Static) Free(assigned cpuset.CPUSet) cpuset.CPUSet {
	return s.machine.Online().Difference(s.reserved).Difference(assigned)
}

// Shared is the set of CPUs for all containers without CPUs of their own: the online ones that
// are not assigned. Reserved CPUs are shared, unless strict-cpu-reservation is on: then the set may
// be empty.
func (s *Static) Shared(assigned cpuset.CPUSet) cpuset.CPUSet {
	shared := s.machine.Online().Difference(assigned)
	if s.options.StrictReservation {
		return shared.Difference(s.reserved)
	}
	return shared
}

// EmptyPoolError says that no CPU would be left for containers that share CPUs, which can happen
// with strict-cpu-reservation only. Such containers would run on CPUs of others.
type EmptyPoolError struct{ Reserved cpuset.CPUSet }

func (e *EmptyPoolError) Error() string {
	return fmt.Sprintf("no cpu is left for containers without cpus of their own: %s keeps them off "+
		"the reserved cpus %q and all others are exclusive; request fewer exclusive cpus or reserve "+
		"fewer", OptionStrictReservation, e.Reserved)
}

// CheckShared tells whether containers can share CPUs while the assigned ones are taken. The error
// is an *EmptyPoolError.
func (s *Static) CheckShared(assigned cpuset.CPUSet) error {
	if s.Shared(assigned).IsEmpty() {
		return &EmptyPoolError{Reserved: s.reserved}
	}
	return nil
}

// ShortageError says that fewer CPUs are free than were asked for. The text is the kubelet's.
type ShortageError struct{ Requested, Available int }

func (e *ShortageError) Error() string {
	return fmt.Sprintf("not enough cpus available to satisfy request: requested=%d, available=%d",
		e.Requested, e.Available)
}
