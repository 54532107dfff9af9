package metrics

import (
	"strconv"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/metric"
)

// topologyMetrics are the kubelet's of its topology manager.
type topologyMetrics struct {
	requests, errors *metrics.Counter
	took             *metrics.Histogram
}

func newTopologyMetrics(s *metric.Set) topologyMetrics {
	return topologyMetrics{
		requests: s.Counter("kubelet_topology_manager_admission_requests_total",
			"Pods placed, or not placed, on the node's hardware."),
		errors: s.Counter("kubelet_topology_manager_admission_errors_total",
			"Pods that got no place on the node's hardware under a topology policy."),
		took: s.Histogram("kubelet_topology_manager_admission_duration_ms",
			"Time to place one pod, in milliseconds.", metrics.ExponentialBuckets(.05, 2, 15)),
	}
}

// cpuMetrics are the kubelet's of its CPU manager.
type cpuMetrics struct {
	requests, errors      *metrics.Counter
	sharedPool, exclusive *metrics.Gauge
	perNUMA               *metrics.GaugeVec
}

func newCPUMetrics(s *metric.Set) cpuMetrics {
	return cpuMetrics{
		requests: s.Counter("kubelet_cpu_manager_pinning_requests_total",
			"Requests for CPUs of a container's own."),
		errors: s.Counter("kubelet_cpu_manager_pinning_errors_total",
			"Requests for CPUs of a container's own that were refused."),
		sharedPool: s.Gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"Size of the shared CPU pool without the reserved CPUs, in millicores."),
		exclusive: s.Gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count",
			"CPUs that containers have for themselves."),
		perNUMA: s.Gauges("kubelet_cpu_manager_allocation_per_numa",
			"CPUs that containers have for themselves, by NUMA node.", "numa_node"),
	}
}

// CPUs takes the CPUs of the machine that are exclusive, and those of the shared pool that can
// become so: the reserved ones cannot.
func (m *Metrics) CPUs(machine *topology.Machine, exclusive, available cpuset.CPUSet) {
	m.cpus.exclusive.Set(float64(exclusive.Size()))
	m.cpus.sharedPool.Set(float64(1000 * available.Size()))
	for _, id := range machine.NodeSet().IDs() {
		cpus := exclusive.Intersection(machine.CPUsOfNode(id))
		m.cpus.perNUMA.WithLabelValues(strconv.Itoa(int(id))).Set(float64(cpus.Size()))
	}
}

// memoryMetrics are the kubelet's of its memory manager.
type memoryMetrics struct{ requests, errors *metrics.Counter }

func newMemoryMetrics(s *metric.Set) memoryMetrics {
	return memoryMetrics{
		requests: s.Counter("kubelet_memory_manager_pinning_requests_total",
			"Requests for memory of NUMA nodes of a container's own choice."),
		errors: s.Counter("kubelet_memory_manager_pinning_errors_total",
			"Requests for memory of NUMA nodes that were refused."),
	}
}

func (m memoryMetrics) list() []metrics.Registerable {
	return []metrics.Registerable{m.requests, m.errors}
}
