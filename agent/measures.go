package agent

import (
	"fmt"
	"slices"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/cpupool"
)

// measures are the agent's own metrics, with the kubelet's names.
type measures struct {
	nodeName *metrics.GaugeVec
	podMeasures
	topology topologyMeasures
	cpus     cpuMeasures
	memory   memoryMeasures
	alignment
	// repairs are those of cgroups that something else had changed.
	repairs map[cpupool.Repair]*metrics.Counter
}

func newMeasures(registry metrics.KubeRegistry, node string) (*measures, error) {
	m := &measures{
		nodeName:    gauges("kubelet_node_name", "The node's name; the value is always 1.", "node"),
		podMeasures: newPodMeasures(),
		topology:    newTopologyMeasures(),
		cpus:        newCPUMeasures(),
		memory:      newMemoryMeasures(),
		alignment:   newAlignment(),
		repairs:     newRepairs(),
	}
	all := slices.Concat(m.podMeasures.list(), m.topology.list(), m.cpus.list(), m.memory.list(),
		m.alignment.list(), []metrics.Registerable{m.nodeName})
	for _, c := range m.repairs {
		all = append(all, c)
	}
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metric %s: %w", c.FQName(), err)
		}
	}
	m.nodeName.WithLabelValues(node).Set(1)
	return m, nil
}

func newRepairs() map[cpupool.Repair]*metrics.Counter {
	return map[cpupool.Repair]*metrics.Counter{
		cpupool.CPUSet: counter("numalet_cpu_set_repairs_total",
			"CPU sets of containers put right that something else had changed."),
		cpupool.MemoryNodes: counter("numalet_memory_nodes_repairs_total",
			"Memory nodes of containers put right that something else had changed."),
		cpupool.CPUQuota: counter("numalet_cpu_quota_repairs_total",
			"CPU quotas of containers and pods put right that something else had changed."),
	}
}

func gauges(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func gauge(name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{
		Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	})
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

func (m *measures) repaired(what cpupool.Repair) { m.repairs[what].Inc() }
