package cpumanager

import (
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Isolating returns the policy with these CPUs isolated: only pods that ask for them (For) get
// them, and containers never share them. Reserved CPUs stay reserved; offline ones are isolated
// once they are online. The error says that none would be left for others.
func (s *Static) Isolating(cpus cpuset.CPUSet) (*Static, error) {
	m := s.layout.machine
	if missing := cpus.Difference(m.Online()).Difference(m.Offline()); !missing.IsEmpty() {
		return nil, fmt.Errorf("isolate cpus %q: the machine has no %q; online are %q",
			cpus, missing, m.Online())
	}
	out := *s
	out.asked.isolated = cpus.Difference(s.asked.reserved)
	out.divide(out.asked)
	if out.Shared(cpuset.New()).IsEmpty() {
		return nil, fmt.Errorf("isolate cpus %q: with the reserved ones, %q, these are all that are "+
			"online, and none is left to share; isolate fewer", cpus, s.reserved)
	}
	return &out, nil
}

// Isolates reports whether there are isolated CPUs, online or not.
func (s *Static) Isolates() bool { return !s.asked.isolated.IsEmpty() }

// For returns the policy for a pod with these rules: it assigns what the pod may have. The shared
// CPUs are the same for all pods.
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
		out.options.DistributeAcrossCores = false // it would split cores
	}
	return &out
}

// Slicing returns the policy by which containers get CPUs out of a pod's pool: a core may be split between
// containers of the pod, as with the kubelet.
func (s *Static) Slicing() *Static {
	out := *s
	out.options.FullPCPUsOnly, out.pads = false, false
	return &out
}

// KubeletDefault returns what a kubelet would share besides the assigned CPUs. A kubelet knows no
// isolated or lent CPUs, and only starts if the unassigned ones are in the default set of its file.
func (s *Static) KubeletDefault(assigned cpuset.CPUSet) cpuset.CPUSet {
	return s.Shared(assigned).Union(s.isolated.Union(s.lent).Difference(assigned))
}

// ReasonIsolatedShortage is the reason for rejecting a pod that asks for more isolated CPUs than
// are free.
const ReasonIsolatedShortage = "OutOfIsolatedCPUs"

// IsolatedShortageError says that fewer isolated CPUs are free than requested.
type IsolatedShortageError struct {
	Requested, Available int
	// Isolated holds all isolated CPUs of the node, online or not.
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

// Reason returns the reason for rejecting a pod.
func (e *IsolatedShortageError) Reason() string { return ReasonIsolatedShortage }

// CheckIsolated checks that n isolated CPUs are left, if the pool has those. The error is an
// *IsolatedShortageError; for ordinary CPUs there is none.
func (s *Static) CheckIsolated(free, reusable cpuset.CPUSet, n int) error {
	if !s.pool.apart {
		return nil
	}
	if have := s.layout.online.only(free).or(s.layout.online.only(reusable)).size(); n > have {
		return &IsolatedShortageError{Requested: n, Available: have, Isolated: s.asked.isolated}
	}
	return nil
}
