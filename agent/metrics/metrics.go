// Package metrics has the agent's own metrics, with the kubelet's names. Parts that have metrics of
// nobody else's interest register them themselves.
package metrics

import (
	"fmt"
	"slices"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/cpupool"
)

// Config is what the metrics are made with.
type Config struct {
	Registry metrics.KubeRegistry
	Node     string // its name
	// StaticCPUs: containers can have CPUs of their own.
	StaticCPUs bool
	// Rules are those that a pod is placed by now.
	Rules func() Rules
}

// Metrics are the agent's.
type Metrics struct {
	rules     func() Rules
	nodeName  *metrics.GaugeVec
	pods      podMetrics
	topology  topologyMetrics
	cpus      cpuMetrics
	memory    memoryMetrics
	alignment alignment
	// repairs are those of cgroups that something else had changed.
	repairs map[cpupool.Repair]*metrics.Counter
	unread  *metrics.Counter
}

// New registers the metrics.
func New(c Config) (*Metrics, error) {
	m := &Metrics{
		rules:     c.Rules,
		nodeName:  gauges("kubelet_node_name", "The node's name; the value is always 1.", "node"),
		pods:      newPodMetrics(),
		topology:  newTopologyMetrics(),
		cpus:      newCPUMetrics(),
		memory:    newMemoryMetrics(),
		alignment: newAlignment(),
		repairs:   newRepairs(),
		unread: counter("numalet_cgroup_read_errors_total",
			"Cgroups of containers and pods that are there and could not be read."),
	}
	all := slices.Concat(m.pods.list(), m.topology.list(), m.cpus.list(), m.memory.list(),
		m.alignment.list(), []metrics.Registerable{m.nodeName, m.unread})
	for _, repairs := range m.repairs {
		all = append(all, repairs)
	}
	for _, one := range all {
		if err := c.Registry.Register(one); err != nil {
			return nil, fmt.Errorf("register metric %s: %w", one.FQName(), err)
		}
	}
	m.nodeName.WithLabelValues(c.Node).Set(1)
	if c.StaticCPUs {
		m.alignment.expectCPUs()
	}
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

// Repaired counts what was put right in a cgroup.
func (m *Metrics) Repaired(what cpupool.Repair) { m.repairs[what].Inc() }

// Unread counts a cgroup that could not be read although it is there.
func (m *Metrics) Unread() { m.unread.Inc() }
