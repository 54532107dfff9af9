package cpumanager

import (
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Isolating is the same policy that keeps these CPUs for those who ask for them (For): they are
// neither given to others nor shared. Those that are reserved stay reserved; those that are offline
// are isolated once they are online. The error says that none would be left for others.
func (s *Static) Isolating(cpus cpuset.CPUSet) (*Static, error) {
	m := s.layout.machine
	if missing := cpus.Difference(m.Online()).Difference(m.Offline()); !missing.IsEmpty() {
		return nil, fmt.Errorf("isolate cpus %q: the machine has no %q; online are %q",
			cpus, missing, m.Online())
	}
	out := *s
	out.asked.isolated = cpus.Difference(s.asked.reserved)
	out.divide(s.reserved, out.asked.isolated)
	if out.Shared(cpuset.New()).IsEmpty() {
		return nil, fmt.Errorf("isolate cpus %q: with the reserved ones, %q, these are all that are "+
			"online, and none is left to share; isolate fewer", cpus, s.reserved)
	}
	return &out, nil
}

// Isolated is the set of online CPUs that are for those who ask for them.
func (s *Static) Isolated() cpuset.CPUSet { return s.isolated }

// Isolates reports whether there are such CPUs, be they online or not.
func (s *Static) Isolates() bool { return !s.asked.isolated.IsEmpty() }

// For is the policy as a pod with these rules sees it: what it gives out is what the pod may have.
// What is shared is the same for all pods.
func (s *Static) For(r topology.CPURules) *Static {
	if !r.Isolated && !r.WholeCores {
		return s
	}
	out := *s
	if r.Isolated {
		out.pool = pool{allocatable: s.isolated, all: s.layout.online.only(s.isolated), apart: true}
	}
	if r.WholeCores {
		out.options.FullPCPUsOnly, out.pads = true, true
		out.options.DistributeAcrossCores = false // which takes cores apart
	}
	return &out
}

// KubeletDefault is what a kubelet would share while the assigned CPUs are taken. It knows no
// isolated CPUs, and starts only if those that nobody has are in the default set of its file.
func (s *Static) KubeletDefault(assigned cpuset.CPUSet) cpuset.CPUSet {
	return s.Shared(assigned).Union(s.isolated.Difference(assigned))
}

// ReasonIsolatedShortage is the reason for a pod that asks for more isolated CPUs than are free.
const ReasonIsolatedShortage = "OutOfIsolatedCPUs"

// IsolatedShortageError says that fewer isolated CPUs are free than were asked for.
type IsolatedShortageError struct {
	Requested, Available int
	// Isolated are all that the node keeps, online or not.
	Isolated cpuset.CPUSet
}

func (e *IsolatedShortageError) Error() string {
	if e.Isolated.IsEmpty() {
		return fmt.Sprintf("%d isolated cpus requested and the node keeps none isolated; see "+
			"--isolated-cpus, or ask for other ones", e.Requested)
	}
	return fmt.Sprintf("not enough isolated cpus available to satisfy request: requested=%d, "+
		"available=%d; the node isolates %d (%s)",
		e.Requested, e.Available, e.Isolated.Size(), e.Isolated)
}

// Reason is the reason to reject a pod with.
func (e *IsolatedShortageError) Reason() string { return ReasonIsolatedShortage }

// CheckIsolated reports whether the isolated CPUs are what a request fails on: fewer than n are
// left of them. The error is an *IsolatedShortageError; for ordinary CPUs there is none.
func (s *Static) CheckIsolated(free, reusable cpuset.CPUSet, n int) error {
	if !s.pool.apart {
		return nil
	}
	if have := s.layout.online.only(free).or(s.layout.online.only(reusable)).size(); n > have {
		return &IsolatedShortageError{Requested: n, Available: have, Isolated: s.asked.isolated}
	}
	return nil
}
