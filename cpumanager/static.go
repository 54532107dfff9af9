package cpumanager

import (
	"errors"
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// ErrNothingReserved: the static policy requires reserved CPUs, or the shared pool could become
// empty.
var ErrNothingReserved = errors.New("[cpumanager] the static policy requires " +
	"systemreserved.cpu + kubereserved.cpu to be greater than zero")

// Static is the static policy on one machine: an immutable value, safe for concurrent use.
type Static struct {
	chooser
	// asked holds the CPUs to be reserved, isolated or lent, online or not; partition derives from
	// them.
	asked asked
	partition
	pool
	// pads: a number that does not fill whole cores is padded, not refused.
	pads bool
}

type asked struct{ reserved, isolated, lent cpuset.CPUSet }

// partition divides the online CPUs: each is in exactly one of the sets.
type partition struct{ reserved, isolated, lent, ordinary cpuset.CPUSet }

// Reserved returns the CPUs that are never assigned.
func (p partition) Reserved() cpuset.CPUSet { return p.reserved }

// Isolated returns the online isolated CPUs.
func (p partition) Isolated() cpuset.CPUSet { return p.isolated }

// Lent returns the online CPUs of drivers of resource claims.
func (p partition) Lent() cpuset.CPUSet { return p.lent }

// pool is the source of exclusive CPUs.
type pool struct {
	// allocatable CPUs can be assigned.
	allocatable cpuset.CPUSet
	// all are the CPUs that decide how narrow hints can be when nothing runs: reserved ones
	// included, as the kubelet judges a machine.
	all bitmap
	// apart: these are the isolated CPUs, which containers never share.
	apart bool
}

// Free returns the CPUs that can be assigned besides the assigned ones.
func (p pool) Free(assigned cpuset.CPUSet) cpuset.CPUSet {
	return p.allocatable.Difference(assigned)
}

// NewStatic returns the policy for machine m, which never assigns the reserved CPUs. These come
// from Reserved, or the operator names them (reservedSystemCPUs). Offline ones are reserved once
// they are online. It refuses options that do not work on the machine.
func NewStatic(m *topology.Machine, reserved cpuset.CPUSet, o Options) (*Static, error) {
	if reserved.IsEmpty() {
		return nil, ErrNothingReserved
	}
	if missing := reserved.Difference(m.Online()).Difference(m.Offline()); !missing.IsEmpty() {
		return nil, fmt.Errorf("reserve cpus %q: the machine has no %q; online are %q",
			reserved, missing, m.Online())
	}
	if reserved.IsSubsetOf(m.Offline()) {
		return nil, fmt.Errorf("reserve cpus %q: none of them is online; online are %q",
			reserved, m.Online())
	}
	nodes := m.NodesOf(m.Online()).IDs()
	if o.StrictReservation && m.Online().IsSubsetOf(reserved) {
		return nil, fmt.Errorf("%s: all online cpus, %q, are reserved and none is left for pods; "+
			"reserve fewer", OptionStrictReservation, reserved)
	}
	if n := len(m.Sockets()); o.AlignBySocket && n > len(nodes) {
		return nil, fmt.Errorf("%s: the machine has %d sockets and only %d NUMA nodes with cpus, "+
			"so a node does not identify a socket; turn the option off",
			OptionAlignBySocket, n, len(nodes))
	}
	return newStatic(newLayout(m), reserved, o), nil
}

func newStatic(l *layout, reserved cpuset.CPUSet, o Options) *Static {
	s := &Static{chooser: chooser{l, o}}
	s.asked.reserved = reserved
	s.divide(s.asked)
	return s
}

// divide changes s: it reserves, lends and isolates the online ones of these CPUs.
func (s *Static) divide(a asked) {
	online := s.layout.machine.Online()
	reserved := a.reserved.Intersection(online)
	lent := a.lent.Intersection(online).Difference(reserved)
	isolated := a.isolated.Intersection(online).Difference(reserved).Difference(lent)
	apart := isolated.Union(lent)
	ordinary := online.Difference(reserved).Difference(apart)
	s.partition = partition{reserved: reserved, isolated: isolated, lent: lent, ordinary: ordinary}
	s.pool = pool{allocatable: ordinary, all: s.layout.online.minus(s.layout.online.only(apart))}
}

// On returns the same policy after CPUs of the machine went offline or came online. Reserved CPUs
// do not move, since containers may have the others: the set shrinks, and grows back. Only if none
// of it is online, the same number of other CPUs is reserved instead.
func (s *Static) On(m *topology.Machine) *Static {
	next := newStatic(newLayout(m), s.asked.reserved, s.options)
	next.asked = s.asked
	now := s.asked
	for _, apart := range []*cpuset.CPUSet{&now.isolated, &now.lent} {
		if m.Online().IsSubsetOf(now.isolated.Union(now.lent)) {
			*apart = cpuset.New() // else nothing would be left to share
		}
	}
	next.divide(now)
	if next.reserved.IsEmpty() {
		n := min(s.asked.reserved.Size(), next.all.size())
		now.reserved = next.chosen(n)
		next.divide(now)
	}
	return next
}

// Reserved chooses the CPUs to reserve for the system, none of them isolated: milliCPU/1000,
// rounded up, as Choose with these options does on an empty machine. But for a number that
// full-pcpus-only would refuse, it splits cores and packs CPUs. The error says that the machine has
// fewer.
func Reserved(m *topology.Machine, isolated cpuset.CPUSet, milliCPU int64, o Options) (
	cpuset.CPUSet, error) {
	n := int(max(0, milliCPU+999) / 1000)
	s := newStatic(newLayout(m), cpuset.New(), o)
	s.divide(asked{isolated: isolated})
	switch have, online := s.all.size(), m.Online().Size(); {
	case n > online:
		return cpuset.New(), fmt.Errorf("reserve %d cpus: the machine has %d online; "+
			"lower systemReserved.cpu or kubeReserved.cpu", n, online)
	case n > have:
		return cpuset.New(), fmt.Errorf("reserve %d cpus: the machine has %d online that are not "+
			"isolated; isolate fewer or lower systemReserved.cpu or kubeReserved.cpu", n, have)
	}
	return s.chosen(n), nil
}

// chosen returns n of the empty machine's CPUs, which must have enough.
func (s *Static) chosen(n int) cpuset.CPUSet {
	by := s.chooser
	if by.options.FullPCPUsOnly && !by.holds(s.all, n) {
		by.options.FullPCPUsOnly, by.options.DistributeAcrossNUMA = false, false
	}
	return by.pick(stores{s.all, s.none(), s.none()}, n, topology.Hint{Any: true})
}

// Shared returns the CPUs for all containers without exclusive ones: the online CPUs that are
// neither assigned nor isolated. Reserved CPUs are shared, unless strict-cpu-reservation is on:
// then the set may be empty.
func (s *Static) Shared(assigned cpuset.CPUSet) cpuset.CPUSet {
	if s.options.StrictReservation {
		return s.ordinary.Difference(assigned)
	}
	return s.ordinary.Union(s.reserved).Difference(assigned)
}

// EmptyPoolError says that no CPU would be left for containers that share CPUs, which would then
// run on CPUs of others. It only occurs with strict-cpu-reservation.
type EmptyPoolError struct{ Reserved cpuset.CPUSet }

func (e *EmptyPoolError) Error() string {
	return fmt.Sprintf("no cpu is left for containers without cpus of their own: %s keeps them "+
		"off the reserved cpus %q and all others are exclusive; request fewer exclusive cpus or "+
		"reserve fewer", OptionStrictReservation, e.Reserved)
}

// CheckShared checks that CPUs are left to share besides the assigned ones. The error is an
// *EmptyPoolError.
func (s *Static) CheckShared(assigned cpuset.CPUSet) error {
	if s.Shared(assigned).IsEmpty() {
		return &EmptyPoolError{Reserved: s.reserved}
	}
	return nil
}

// ShortageError says that fewer CPUs are free than requested. The text is the kubelet's.
type ShortageError struct{ Requested, Available int }

func (e *ShortageError) Error() string {
	return fmt.Sprintf("not enough cpus available to satisfy request: requested=%d, available=%d",
		e.Requested, e.Available)
}
