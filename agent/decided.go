package agent

import (
	"errors"
	"strings"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// alignment counts what containers got within one NUMA node, one cache or whole cores, as far as
// that is promised.
type alignment struct{ aligned, misaligned *metrics.CounterVec }

// Labels of alignment, the kubelet's.
const (
	scopeContainer = "container"
	scopePod       = "pod"

	withinNode  = "numa_node"
	withinCache = "uncore_cache"
	wholeCores  = "physical_cpu"
)

func newAlignment() alignment {
	return alignment{
		aligned: counters("kubelet_container_aligned_compute_resources_count",
			"Containers, or pods, whose resources are aligned.", "scope", "boundary"),
		misaligned: counters("kubelet_container_aligned_compute_resources_failure_count",
			"Containers, or pods, whose resources could not be aligned.", "scope", "boundary"),
	}
}

func (a alignment) list() []metrics.Registerable {
	return []metrics.Registerable{a.aligned, a.misaligned}
}

// expectCPUs has the metrics of the static CPU policy be there before there is anything to count.
func (a alignment) expectCPUs() {
	a.aligned.WithLabelValues(scopeContainer, wholeCores).Add(0)
	a.misaligned.WithLabelValues(scopeContainer, wholeCores).Add(0)
	a.aligned.WithLabelValues(scopeContainer, withinCache).Add(0)
}

// rules are those that a pod was placed by.
type rules struct {
	policy  topology.Policy
	scope   topology.Scope
	machine *topology.Machine
	// wholeCores: CPUs of a container's own come as whole cores only.
	wholeCores bool
}

func (a *Agent) rules() rules {
	h := a.facts.hardware.Get()
	return rules{
		policy: a.facts.policy, scope: a.facts.scope, machine: h.Machine,
		wholeCores: h.CPUs != nil && h.CPUs.WholeCores(),
	}
}

// decided counts a pod that is admitted or rejected: once, however often it was tried to place it
// before.
func (m *measures) decided(r admission.Result, by rules) {
	if r.Tried == nil {
		return
	}
	err := r.Tried.Err
	m.topology.requests.Inc()
	m.topology.took.Observe(float64(r.Tried.Took.Microseconds()) / 1000)
	if err != nil && by.policy != topology.None && !strings.HasPrefix(r.Reason, "OutOf") {
		m.topology.errors.Inc()
	}
	if by.policy == topology.SingleNUMANode {
		m.withinNode(r, by.scope)
	}
	m.pinned(r.Tried.Plan.Pod, by)
	shortage, unaligned := (*cpumanager.ShortageError)(nil), (*cpumanager.SMTAlignmentError)(nil)
	if errors.As(err, &shortage) || errors.As(err, &unaligned) {
		m.cpus.requests.Inc()
		m.cpus.errors.Inc()
		if by.wholeCores {
			m.misaligned.WithLabelValues(scopeContainer, wholeCores).Inc()
		}
	}
	if memory.Refused(err) {
		m.memory.requests.Inc()
		m.memory.errors.Inc()
	}
}

// withinNode counts under the policy that promises one NUMA node: each container that has a place,
// whatever it asks for, or the pod.
func (m *measures) withinNode(r admission.Result, scope topology.Scope) {
	if r.Reason == allocation.ReasonTopology {
		label := scopeContainer
		if scope == topology.PodScope {
			label = scopePod
		}
		m.misaligned.WithLabelValues(label, withinNode).Inc()
	}
	switch {
	case scope != topology.PodScope:
		placed := len(r.Tried.Plan.Pod.Containers)
		m.aligned.WithLabelValues(scopeContainer, withinNode).Add(float64(placed))
	case r.Outcome == admission.Admit:
		m.aligned.WithLabelValues(scopePod, withinNode).Inc()
	}
}

// pinned counts the containers that have CPUs or memory of their own.
func (m *measures) pinned(pod allocation.Pod, by rules) {
	for _, c := range pod.Containers {
		if len(c.Memory) > 0 {
			m.memory.requests.Inc()
		}
		if c.CPUs.IsEmpty() {
			continue
		}
		m.cpus.requests.Inc()
		if by.wholeCores {
			m.aligned.WithLabelValues(scopeContainer, wholeCores).Inc()
		}
		if inOneCache(by.machine, c.CPUs) {
			m.aligned.WithLabelValues(scopeContainer, withinCache).Inc()
		}
	}
}

func inOneCache(m *topology.Machine, cpus cpuset.CPUSet) bool {
	for _, id := range m.L3s() {
		if cpus.IsSubsetOf(m.CPUsOfL3(id)) {
			return true
		}
	}
	return false
}
