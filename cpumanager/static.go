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
	chooser
	// asked are the CPUs that were to be kept, online or not; partition is made of them.
	asked struct{ reserved, isolated cpuset.CPUSet }
	partition
	pool
	// pads: a number that is none of whole cores is padded, not refused.
	pads bool
}

// partition is what becomes of the online CPUs: each is in one of the sets.
type partition struct{ reserved, isolated, ordinary cpuset.CPUSet }

// pool is where containers get CPUs of their own from.
type pool struct {
	// allocatable are given out.
	allocatable cpuset.CPUSet
	// all are what the pool is judged by when nothing runs: with the reserved ones, as the kubelet
	// judges a machine.
	all bitmap
	// apart: they are the isolated ones, which nobody shares.
	apart bool
}

// NewStatic makes the policy for machine m, where the reserved CPUs are never given out. Their
// number comes from Reserved, or the operator names them (reservedSystemCPUs). Those that are
// offline are reserved once they are online. It refuses options that the machine cannot follow.
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
			"so that a node says nothing of the socket; turn the option off",
			OptionAlignBySocket, n, len(nodes))
	}
	return newStatic(newLayout(m), reserved, o), nil
}

func newStatic(l *layout, reserved cpuset.CPUSet, o Options) *Static {
	s := &Static{chooser: chooser{l, o}}
	s.asked.reserved = reserved
	s.divide(reserved, cpuset.New())
	return s
}

// divide changes s: of the online CPUs it keeps these.
func (s *Static) divide(reserved, isolated cpuset.CPUSet) {
	online := s.layout.machine.Online()
	reserved = reserved.Intersection(online)
	isolated = isolated.Intersection(online).Difference(reserved)
	ordinary := online.Difference(reserved).Difference(isolated)
	s.partition = partition{reserved: reserved, isolated: isolated, ordinary: ordinary}
	s.pool = pool{allocatable: ordinary, all: s.layout.online.minus(s.layout.online.only(isolated))}
}

// On is the same policy after CPUs of the machine have gone offline or come online. What is
// reserved does not move, since containers may have the other CPUs: it shrinks, and grows back.
// Only when none of it is online, as many others are reserved instead.
func (s *Static) On(m *topology.Machine) *Static {
	next := newStatic(newLayout(m), s.asked.reserved, s.options)
	next.asked = s.asked
	isolated := s.asked.isolated
	if m.Online().IsSubsetOf(isolated) {
		isolated = cpuset.New() // else nothing would be left to share
	}
	next.divide(s.asked.reserved, isolated)
	if next.reserved.IsEmpty() {
		n := min(s.asked.reserved.Size(), next.all.size())
		next.divide(next.chosen(n), isolated)
	}
	return next
}

// Reserved chooses the CPUs to keep for the system, none of the isolated ones: milliCPU/1000 of
// them, rounded up, as Choose with these options does on an empty machine. But cores are split, and
// CPUs then packed, for a number that full-pcpus-only would refuse. The error says that the machine
// has fewer.
func Reserved(m *topology.Machine, isolated cpuset.CPUSet, milliCPU int64, o Options) (
	cpuset.CPUSet, error) {
	n := int(max(0, milliCPU+999) / 1000)
	s := newStatic(newLayout(m), cpuset.New(), o)
	s.divide(cpuset.New(), isolated)
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

// chosen are n of the empty machine's CPUs, which has as many.
func (s *Static) chosen(n int) cpuset.CPUSet {
	by := s.chooser
	if by.options.FullPCPUsOnly && !by.holds(s.all, n) {
		by.options.FullPCPUsOnly, by.options.DistributeAcrossNUMA = false, false
	}
	return by.pick(s.all, make(bitmap, len(s.layout.online)), n, topology.Hint{Any: true})
}

// Reserved is the set of CPUs that are never given out.
func (s *Static) Reserved() cpuset.CPUSet { return s.reserved }

// WholeCores reports whether whole cores only are given out.
func (s *Static) WholeCores() bool { return s.options.FullPCPUsOnly }

// Online is the set of CPUs of the machine that containers can run on.
func (s *Static) Online() cpuset.CPUSet { return s.layout.machine.Online() }

// Free is the set of CPUs that can be given out while the assigned ones are taken.
func (s *Static) Free(assigned cpuset.CPUSet) cpuset.CPUSet {
	return s.allocatable.Difference(assigned)
}

// Shared is the set of CPUs for all containers without CPUs of their own: the online ones that
// are neither assigned nor isolated. Reserved CPUs are shared, unless strict-cpu-reservation is on:
// then the set may be empty.
func (s *Static) Shared(assigned cpuset.CPUSet) cpuset.CPUSet {
	if s.options.StrictReservation {
		return s.ordinary.Difference(assigned)
	}
	return s.ordinary.Union(s.reserved).Difference(assigned)
}

// EmptyPoolError says that no CPU would be left for containers that share CPUs, which can happen
// with strict-cpu-reservation only. Such containers would run on CPUs of others.
type EmptyPoolError struct{ Reserved cpuset.CPUSet }

func (e *EmptyPoolError) Error() string {
	return fmt.Sprintf("no cpu is left for containers without cpus of their own: %s keeps them "+
		"off the reserved cpus %q and all others are exclusive; request fewer exclusive cpus or "+
		"reserve fewer", OptionStrictReservation, e.Reserved)
}

// CheckShared reports whether containers can share CPUs while the assigned ones are taken. The
// error is an *EmptyPoolError.
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
