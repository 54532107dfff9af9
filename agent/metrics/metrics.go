// Package metrics has the agent's own metrics, with the kubelet's names. Parts that have metrics of
// nobody else's interest register them themselves.
package metrics

import (
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/metric"
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
	pods      podMetrics
	starts    *starts
	startup   *startup
	ends      *metrics.CounterVec
	rounds    *rounds
	topology  topologyMetrics
	cpus      cpuMetrics
	memory    attempts
	placement placedMetrics
	alignment alignment
	cgroups   cgroupMetrics
	volumes   *volumeMetrics
}

// cgroupMetrics are about cgroups that are not as they should be.
type cgroupMetrics struct {
	// repairs are those that something else had changed.
	repairs map[cpupool.Repair]*metrics.Counter
	unread  *metrics.Counter
}

// New registers the metrics.
func New(c Config) (*Metrics, error) {
	var s metric.Set
	m := &Metrics{
		pods:      newPodMetrics(&s),
		starts:    newStarts(&s),
		startup:   newStartup(&s),
		ends:      newEnds(&s),
		rounds:    newRounds(&s),
		topology:  newTopologyMetrics(&s),
		cpus:      newCPUMetrics(&s),
		memory:    newMemoryMetrics(&s),
		placement: newPlacedMetrics(&s),
		alignment: newAlignment(&s, c.Rules),
		cgroups:   newCgroupMetrics(&s),
		volumes:   newVolumeMetrics(&s),
	}
	node := s.Gauges("kubelet_node_name", "The node's name; the value is always 1.", "node")
	if err := s.Register(c.Registry); err != nil {
		return nil, err
	}
	node.WithLabelValues(c.Node).Set(1)
	m.pods.expect()
	m.rounds.expect()
	if c.StaticCPUs {
		m.alignment.expectCPUs()
	}
	if c.Rules != nil && c.Rules().Policy != topology.None {
		m.alignment.expectNodes()
	}
	return m, nil
}

func newCgroupMetrics(s *metric.Set) (m cgroupMetrics) {
	m.unread = s.Counter("numalet_cgroup_read_errors_total",
		"Cgroups of containers and pods that are there and could not be read.")
	m.repairs = map[cpupool.Repair]*metrics.Counter{
		cpupool.CPUSet: s.Counter("numalet_cpu_set_repairs_total",
			"CPU sets of containers put right that something else had changed."),
		cpupool.MemoryNodes: s.Counter("numalet_memory_nodes_repairs_total",
			"Memory nodes of containers put right that something else had changed."),
		cpupool.CPUQuota: s.Counter("numalet_cpu_quota_repairs_total",
			"CPU quotas of containers and pods put right that something else had changed."),
	}
	return m
}

// Repaired counts what was put right in a cgroup.
func (m *Metrics) Repaired(what cpupool.Repair) { m.cgroups.repairs[what].Inc() }

// Unread counts a cgroup that could not be read although it is there.
func (m *Metrics) Unread() { m.cgroups.unread.Inc() }
