package cpumanager

import (
	"fmt"

	"k8s.io/utils/cpuset"
)

// Lending returns the policy with these CPUs lent to drivers of resource claims: it assigns none of
// them, and containers never share them. Offline ones are lent once they are online. The error says
// that the system or isolated CPUs have them too, or that none would be left for others.
func (s *Static) Lending(cpus cpuset.CPUSet) (*Static, error) {
	m := s.layout.machine
	if missing := cpus.Difference(m.Online()).Difference(m.Offline()); !missing.IsEmpty() {
		return nil, fmt.Errorf("the machine has no cpus %q; online are %q", missing, m.Online())
	}
	for _, other := range []struct {
		words string
		has   cpuset.CPUSet
	}{{"reserved for the system", s.asked.reserved}, {"isolated", s.asked.isolated}} {
		if both := cpus.Intersection(other.has); !both.IsEmpty() {
			return nil, fmt.Errorf("cpus %q are %s too; give them to one of both", both, other.words)
		}
	}
	out := *s
	out.asked.lent = cpus
	out.divide(out.asked)
	if out.Shared(cpuset.New()).IsEmpty() {
		return nil, fmt.Errorf("with cpus %q none of the online ones, %q, is left to share; lend fewer",
			cpus, m.Online())
	}
	return &out, nil
}

// CheckLent returns an error that names the CPUs which a driver of resource claims must not hand out, and
// why; nil: it may.
func (s *Static) CheckLent(cpus, assigned cpuset.CPUSet) error {
	if others := cpus.Intersection(assigned); !others.IsEmpty() {
		return fmt.Errorf("CPUs %s, which another container has exclusively", others)
	}
	if outside := cpus.Difference(s.asked.lent); !outside.IsEmpty() {
		return fmt.Errorf("CPUs %s, which --dra-cpus does not give to drivers of resource claims (it "+
			"gives them %q); add them there, or take them from the driver", outside, s.asked.lent)
	}
	return nil
}

// Step returns by how many CPUs numbers of exclusive CPUs grow: the threads of a core if only whole
// cores are assigned.
func (s *Static) Step() int64 {
	if !s.options.FullPCPUsOnly {
		return 1
	}
	return int64(max(1, s.layout.sizes.largest()))
}
