package metrics

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// alignment counts whether containers got their resources within one NUMA node, one cache or whole
// cores. It counts only what a policy promises.
type alignment struct {
	rules               func() Rules
	aligned, misaligned *metrics.CounterVec
}

// The kubelet's labels of alignment.
const (
	scopeContainer = "container"
	scopePod       = "pod"

	withinNode  = "numa_node"
	withinCache = "uncore_cache"
	wholeCores  = "physical_cpu"
)

func newAlignment(s *metric.Set, rules func() Rules) alignment {
	return alignment{
		rules: rules,
		aligned: s.Counters("kubelet_container_aligned_compute_resources_count",
			"Containers, or pods, whose resources are aligned.", "scope", "boundary"),
		misaligned: s.Counters("kubelet_container_aligned_compute_resources_failure_count",
			"Containers, or pods, whose resources could not be aligned.", "scope", "boundary"),
	}
}

// expectCPUs creates the series of the static CPU policy before anything is counted.
func (a alignment) expectCPUs() {
	a.aligned.WithLabelValues(scopeContainer, wholeCores).Add(0)
	a.misaligned.WithLabelValues(scopeContainer, wholeCores).Add(0)
	a.aligned.WithLabelValues(scopeContainer, withinCache).Add(0)
}

// expectNodes does the same for a topology policy; the kubelet does it for every policy but none.
func (a alignment) expectNodes() {
	for _, scope := range []string{scopeContainer, scopePod} {
		a.aligned.WithLabelValues(scope, withinNode).Add(0)
		a.misaligned.WithLabelValues(scope, withinNode).Add(0)
	}
}

// Rules are the rules by which a pod was placed.
type Rules struct {
	topology.Rules
	Machine *topology.Machine
	// WholeCores is set if exclusive CPUs are whole cores only.
	WholeCores bool
}

// Rejected counts a pod that is rejected for such a reason, and not for lack of a counted resource.
func (m *Metrics) Rejected(reason string) { m.pods.rejected(reason, "") }

// Decided counts a pod that was admitted or rejected, once, however often placing it was tried, and a
// resize that the node does not do.
func (m *Metrics) Decided(r report.Result) {
	m.resizes.refused(r)
	if r.Outcome == decide.Reject {
		m.pods.rejected(r.Reason, r.Short)
	}
	if r.Tried != nil {
		by := m.alignment.rules()
		by.Rules, _ = podspec.Rules(r.Pod, by.Rules) // with an error no placement was tried
		m.placed(r, by)
	}
}

func (m *Metrics) placed(r report.Result, by Rules) {
	err := r.Tried.Err
	m.topology.all.Inc()
	m.topology.took.Observe(float64(r.Tried.Took.Microseconds()) / 1000)
	short := r.Short != "" || r.Reason == cpumanager.ReasonIsolatedShortage // no failure of a policy
	if err != nil && by.Policy != topology.None && !short {
		m.topology.failed.Inc()
	}
	if by.Policy == topology.SingleNUMANode {
		m.alignment.withinNode(r, by.Scope)
	}
	m.pinned(r.Pod, r.Tried.Plan.Pod, by)
	if by.PodLevel {
		m.shares.placed(r.Pod, r.Tried.Plan.Pod)
		m.shares.failed(err, podspec.OwnOf(r.Pod, by.Rules) == podspec.OwnPool)
	}
	if lacksCPUs(err) {
		m.cpus.count(err)
		if by.WholeCores {
			m.alignment.misaligned.WithLabelValues(scopeContainer, wholeCores).Inc()
		}
	}
	if memory.Refused(err) {
		m.memory.count(err)
	}
}

// withinNode counts under the policy that promises one NUMA node: each placed container, whatever
// it asks for, or the pod.
func (a alignment) withinNode(r report.Result, scope topology.Scope) {
	if r.Reason == allocation.ReasonTopology {
		label := scopeContainer
		if scope == topology.PodScope {
			label = scopePod
		}
		a.misaligned.WithLabelValues(label, withinNode).Inc()
	}
	switch {
	case scope != topology.PodScope:
		placed := len(r.Tried.Plan.Pod.Containers)
		a.aligned.WithLabelValues(scopeContainer, withinNode).Add(float64(placed))
	case r.Outcome == decide.Admit:
		a.aligned.WithLabelValues(scopePod, withinNode).Inc()
	}
}

// pinned counts the containers with exclusive CPUs or placed memory.
func (m *Metrics) pinned(pod *v1.Pod, held allocation.Pod, by Rules) {
	if !held.Pool().IsEmpty() {
		m.pinnedInPool(pod, held, by)
		return
	}
	for _, c := range held.Containers {
		if len(c.Memory()) > 0 {
			m.memory.count(nil)
		}
		if c.CPUs().IsEmpty() {
			continue
		}
		m.cpus.count(nil)
		if by.WholeCores {
			m.alignment.aligned.WithLabelValues(scopeContainer, wholeCores).Inc()
		}
		if inOneCache(by.Machine, c.CPUs()) {
			m.alignment.aligned.WithLabelValues(scopeContainer, withinCache).Inc()
		}
	}
}

// pinnedInPool counts the containers that have parts of the pod's pool, and the pool's memory. Like the
// kubelet it looks at the pool as to caches, and not as to whole cores.
func (m *Metrics) pinnedInPool(pod *v1.Pod, held allocation.Pod, by Rules) {
	for c := range podspec.Containers(pod) {
		has := held.Containers[c.Name]
		if !has.CPUs().IsEmpty() && !held.SharesCPUs(pod, c) {
			m.cpus.count(nil)
		}
		if len(has.Memory()) > 0 && !held.SharesMemory(pod, c) {
			m.memory.count(nil)
		}
	}
	if len(held.Pool().Memory()) > 0 {
		m.memory.count(nil)
	}
	if cpus := held.Pool().CPUs(); !cpus.IsEmpty() && inOneCache(by.Machine, cpus) {
		m.alignment.aligned.WithLabelValues(scopeContainer, withinCache).Inc()
	}
}

func inOneCache(m *topology.Machine, cpus cpuset.CPUSet) bool {
	return slices.ContainsFunc(m.L3s(),
		func(id topology.L3ID) bool { return cpus.IsSubsetOf(m.CPUsOfL3(id)) })
}
