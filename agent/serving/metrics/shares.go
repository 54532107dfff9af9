package metrics

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// shareMetrics holds the kubelet's metrics of CPUs and memory that containers get from the node or from
// their pod's pool. They have series only with the gate PodLevelResourceManagers.
type shareMetrics struct{ allocations, errors, containers *metrics.CounterVec }

// The kubelet's labels.
const (
	fromPod  = "pod"
	fromNode = "node"

	ofNode      = "node_exclusive"
	ofPod       = "pod_exclusive"
	sharedInPod = "pod_shared"
)

func newShareMetrics(s *metric.Set) shareMetrics {
	return shareMetrics{
		allocations: s.Counters("kubelet_resource_manager_allocations_total",
			"Containers that got CPUs, or memory of NUMA nodes, from the node or from their pod.",
			"resource_name", "source"),
		errors: s.Counters("kubelet_resource_manager_allocation_errors_total",
			"Requests for CPUs, or memory of NUMA nodes, that were refused.", "resource_name", "source"),
		containers: s.Counters("kubelet_resource_manager_container_assignments_total",
			"Containers by whom they share their CPUs or memory with.", "resource_name", "assignment_type"),
	}
}

// placed counts what the pod's containers got.
func (m shareMetrics) placed(pod *v1.Pod, held allocation.Pod) {
	for c := range podspec.Containers(pod) {
		has := held.Containers[c.Name]
		if !has.CPUs().IsEmpty() {
			m.count(v1.ResourceCPU, !held.Pool().CPUs().IsEmpty(), held.SharesCPUs(pod, c))
		}
		if len(has.Memory()) > 0 {
			m.count(v1.ResourceMemory, len(held.Pool().Memory()) > 0, held.SharesMemory(pod, c))
		}
	}
}

func (m shareMetrics) count(resource v1.ResourceName, pooled, shared bool) {
	source, kind := fromNode, ofNode
	switch {
	case shared:
		source, kind = fromPod, sharedInPod
	case pooled:
		source, kind = fromPod, ofPod
	}
	m.allocations.WithLabelValues(string(resource), source).Inc()
	m.containers.WithLabelValues(string(resource), kind).Inc()
}

// failed counts a refusal for lack of CPUs or memory, if it is one.
func (m shareMetrics) failed(err error, pooled bool) {
	source := fromNode
	if pooled {
		source = fromPod
	}
	if empty, is := errors.AsType[*allocation.EmptyPodPoolError](err); is {
		resource := v1.ResourceMemory
		if empty.Resource == v1.ResourceCPU {
			resource = v1.ResourceCPU
		}
		m.errors.WithLabelValues(string(resource), source).Inc()
	}
	if lacksCPUs(err) {
		m.errors.WithLabelValues(string(v1.ResourceCPU), source).Inc()
	}
	if memory.Refused(err) {
		m.errors.WithLabelValues(string(v1.ResourceMemory), source).Inc()
	}
}

// lacksCPUs reports whether a pod is refused for lack of exclusive CPUs.
func lacksCPUs(err error) bool {
	shortage, unaligned := (*cpumanager.ShortageError)(nil), (*cpumanager.SMTAlignmentError)(nil)
	isolated := (*cpumanager.IsolatedShortageError)(nil)
	return errors.As(err, &shortage) || errors.As(err, &unaligned) || errors.As(err, &isolated)
}
