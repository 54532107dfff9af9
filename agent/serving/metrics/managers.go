package metrics

import (
	"strconv"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology"
)

// topologyMetrics holds the kubelet's metrics of its topology manager.
type topologyMetrics struct {
	attempts
	took *metrics.Histogram
}

func newTopologyMetrics(s *metric.Set) topologyMetrics {
	return topologyMetrics{
		attempts: newAttempts(s, "kubelet_topology_manager_admission",
			"Pods placed, or not placed, on the node's hardware.",
			"Pods that got no place on the node's hardware under a topology policy."),
		took: s.Histogram("kubelet_topology_manager_admission_duration_ms",
			"Time to place one pod, in milliseconds.", metrics.ExponentialBuckets(.05, 2, 15)),
	}
}

// cpuMetrics holds the kubelet's metrics of its CPU manager.
type cpuMetrics struct {
	attempts
	sharedPool, exclusive *metrics.Gauge
	perNUMA               *metrics.GaugeVec
}

func newCPUMetrics(s *metric.Set) cpuMetrics {
	return cpuMetrics{
		attempts: newAttempts(s, "kubelet_cpu_manager_pinning",
			"Requests for CPUs of a container's own.",
			"Requests for CPUs of a container's own that were refused."),
		sharedPool: s.Gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"Size of the shared CPU pool without the reserved CPUs, in millicores."),
		exclusive: s.Gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count",
			"CPUs that containers have for themselves."),
		perNUMA: s.Gauges("kubelet_cpu_manager_allocation_per_numa",
			"CPUs that containers have for themselves, by NUMA node.", "numa_node"),
	}
}

// CPUs records the machine's exclusive CPUs, and the CPUs of the shared pool that can become
// exclusive: reserved CPUs cannot.
func (m *Metrics) CPUs(machine *topology.Machine, exclusive, available cpuset.CPUSet) {
	m.cpus.exclusive.Set(float64(exclusive.Size()))
	m.cpus.sharedPool.Set(float64(1000 * available.Size()))
	for _, id := range machine.NodeSet().IDs() {
		cpus := exclusive.Intersection(machine.CPUsOfNode(id))
		m.cpus.perNUMA.WithLabelValues(strconv.Itoa(int(id))).Set(float64(cpus.Size()))
	}
}

// newMemoryMetrics returns the kubelet's metrics of its memory manager.
func newMemoryMetrics(s *metric.Set) attempts {
	return newAttempts(s, "kubelet_memory_manager_pinning",
		"Requests for memory of NUMA nodes of a container's own choice.",
		"Requests for memory of NUMA nodes that were refused.")
}

// attempts counts all attempts, and those that failed: starts, or a manager's requests.
type attempts struct{ all, failed *metrics.Counter }

func newAttempts(s *metric.Set, of, requests, refused string) attempts {
	return attempts{
		all:    s.Counter(of+"_requests_total", requests),
		failed: s.Counter(of+"_errors_total", refused),
	}
}

func (a attempts) count(err error) {
	a.all.Inc()
	if err != nil {
		a.failed.Inc()
	}
}
