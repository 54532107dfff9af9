package agent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
)

// measures are the agent's own metrics, with the kubelet's names.
type measures struct {
	nodeName, desired, active, perNUMA        *metrics.GaugeVec
	rejections                                *metrics.CounterVec
	containers, containerErrors               *metrics.CounterVec
	pods, podErrors                           *metrics.Counter
	topology, topologyErrors, pinning, pinErr *metrics.Counter
	memoryPinning, memoryPinErr               *metrics.Counter
	topologyTook                              *metrics.Histogram
	sharedPool, exclusive                     *metrics.Gauge
	alignment
	// repairs are those of cgroups that something else had changed.
	repairs map[cpupool.Repair]*metrics.Counter
}

func newMeasures(registry metrics.KubeRegistry, node string) (*measures, error) {
	m := &measures{
		nodeName:   gauges("kubelet_node_name", "The node's name; the value is always 1.", "node"),
		desired:    gauges("kubelet_desired_pods", "Pods that sources desire on the node.", "static"),
		active:     gauges("kubelet_active_pods", "Pods that hold resources of the node.", "static"),
		rejections: counters("kubelet_admission_rejections_total", "Pods rejected, by reason.", "reason"),
		containers: counters("kubelet_started_containers_total", "Starts of containers.", "container_type"),
		containerErrors: counters("kubelet_started_containers_errors_total",
			"Starts of containers that failed.", "container_type", "code"),
		pods:      counter("kubelet_started_pods_total", "Sandboxes made."),
		podErrors: counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made."),
		topology: counter("kubelet_topology_manager_admission_requests_total",
			"Pods placed, or not placed, on the node's hardware."),
		topologyErrors: counter("kubelet_topology_manager_admission_errors_total",
			"Pods that got no place on the node's hardware under a topology policy."),
		topologyTook: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: "kubelet_topology_manager_admission_duration_ms",
			Help: "Time to place one pod, in milliseconds.", StabilityLevel: metrics.ALPHA,
			Buckets: metrics.ExponentialBuckets(.05, 2, 15),
		}),
		pinning: counter("kubelet_cpu_manager_pinning_requests_total",
			"Requests for CPUs of a container's own."),
		pinErr: counter("kubelet_cpu_manager_pinning_errors_total",
			"Requests for CPUs of a container's own that were refused."),
		memoryPinning: counter("kubelet_memory_manager_pinning_requests_total",
			"Requests for memory of NUMA nodes of a container's own choice."),
		memoryPinErr: counter("kubelet_memory_manager_pinning_errors_total",
			"Requests for memory of NUMA nodes that were refused."),
		sharedPool: gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"Size of the shared CPU pool without the reserved CPUs, in millicores."),
		exclusive: gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count",
			"CPUs that containers have for themselves."),
		repairs: map[cpupool.Repair]*metrics.Counter{
			cpupool.CPUSet: counter("numalet_cpu_set_repairs_total",
				"CPU sets of containers put right that something else had changed."),
			cpupool.MemoryNodes: counter("numalet_memory_nodes_repairs_total",
				"Memory nodes of containers put right that something else had changed."),
			cpupool.CPUQuota: counter("numalet_cpu_quota_repairs_total",
				"CPU quotas of containers and pods put right that something else had changed."),
		},
		perNUMA: gauges("kubelet_cpu_manager_allocation_per_numa",
			"CPUs that containers have for themselves, by NUMA node.", "numa_node"),
		alignment: newAlignment(),
	}
	for _, c := range []metrics.Registerable{
		m.nodeName, m.desired, m.active, m.rejections, m.containers, m.containerErrors, m.pods,
		m.podErrors, m.topology, m.topologyErrors, m.topologyTook, m.pinning, m.pinErr,
		m.memoryPinning, m.memoryPinErr, m.sharedPool, m.exclusive, m.perNUMA,
		m.aligned, m.misaligned,
		m.repairs[cpupool.CPUSet], m.repairs[cpupool.MemoryNodes], m.repairs[cpupool.CPUQuota],
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metric %s: %w", c.FQName(), err)
		}
	}
	m.nodeName.WithLabelValues(node).Set(1)
	return m, nil
}

func gauges(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func gauge(name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

func counters(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func counter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{
		Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	})
}

func (m *measures) rejection(r admission.Result) {
	m.rejections.WithLabelValues(reasonLabel(r.Reason)).Inc()
}

func (m *measures) repaired(what cpupool.Repair) { m.repairs[what].Inc() }

// assigned takes the CPUs of the machine that are exclusive, and those of the shared pool that can
// become so: the reserved ones cannot.
func (m *measures) assigned(machine *topology.Machine, exclusive, available cpuset.CPUSet) {
	m.exclusive.Set(float64(exclusive.Size()))
	m.sharedPool.Set(float64(1000 * available.Size()))
	for _, id := range machine.NodeSet().IDs() {
		cpus := exclusive.Intersection(machine.CPUsOfNode(id))
		m.perNUMA.WithLabelValues(strconv.Itoa(int(id))).Set(float64(cpus.Size()))
	}
}

// counts counts pods; the label static is "true" or empty, as the kubelet's.
func (m *measures) counts(desired, active []*v1.Pod) {
	for vec, list := range map[*metrics.GaugeVec][]*v1.Pod{m.desired: desired, m.active: active} {
		count := map[string]int{"": 0, "true": 0}
		for _, pod := range list {
			label := "true"
			if pod.Annotations[source.AnnotationSource] == source.APISource {
				label = ""
			}
			count[label]++
		}
		for label, n := range count {
			vec.WithLabelValues(label).Set(float64(n))
		}
	}
}

// started counts a start of a container, or of a pod's sandbox when c is nil.
func (m *measures) started(pod *v1.Pod, c *v1.Container, err error) {
	if c == nil {
		m.pods.Inc()
		if err != nil {
			m.podErrors.Inc()
		}
		return
	}
	kind := "container"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == c.Name {
			kind = "init_container"
		}
	}
	m.containers.WithLabelValues(kind).Inc()
	var start *cri.StartError
	if errors.As(err, &start) {
		m.containerErrors.WithLabelValues(kind, start.Reason).Inc()
	}
}

// reasonLabel keeps the label's values few: each extended resource would be one more.
func reasonLabel(reason string) string {
	switch resource, short := strings.CutPrefix(reason, "OutOf"); {
	case short && allocation.IsExtended(v1.ResourceName(resource)):
		return "OutOfExtendedResources"
	case short, reason == allocation.ReasonUnexpected, reason == allocation.ReasonTopology,
		reason == admission.ReasonSysctl, reason == cpumanager.ReasonSMTAlignment:
		return reason
	}
	return "Other"
}
