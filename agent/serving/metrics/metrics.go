// Package metrics holds the agent's own metrics, under the kubelet's names. Parts register metrics
// that only concern them themselves.
package metrics

import (
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/placement/resources"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology"
)

// Config configures the metrics.
type Config struct {
	Registry metrics.KubeRegistry
	Node     string // its name
	// StaticCPUs is set if containers can have exclusive CPUs.
	StaticCPUs bool
	// Rules returns the present rules of placement.
	Rules func() Rules
}

// Metrics holds the agent's metrics.
type Metrics struct {
	// Who joins the cluster and who writes cgroups count here themselves.
	Startup *Startup
	Cgroups Cgroups

	pods      podMetrics
	starts    *starts
	ends      *metrics.CounterVec
	rounds    *rounds
	topology  topologyMetrics
	cpus      cpuMetrics
	memory    attempts
	shares    shareMetrics
	placement placedMetrics
	alignment alignment
	resizes   resizes
	volumes   *volumeMetrics
}

// Cgroups counts what was put right in cgroups, and what could not be read.
type Cgroups struct {
	// repairs counts foreign changes that were undone.
	repairs map[resources.Kind]*metrics.Counter
	unread  *metrics.Counter
}

// New registers the metrics.
func New(c Config) (*Metrics, error) {
	var s metric.Set
	m := &Metrics{
		pods:      newPodMetrics(&s),
		starts:    newStarts(&s),
		Startup:   newStartup(&s),
		ends:      newEnds(&s),
		rounds:    newRounds(&s),
		topology:  newTopologyMetrics(&s),
		cpus:      newCPUMetrics(&s),
		memory:    newMemoryMetrics(&s),
		shares:    newShareMetrics(&s),
		placement: newPlacedMetrics(&s),
		alignment: newAlignment(&s, c.Rules),
		resizes:   newResizes(&s),
		Cgroups:   newCgroupMetrics(&s),
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

func newCgroupMetrics(s *metric.Set) (m Cgroups) {
	m.unread = s.Counter("numalet_cgroup_read_errors_total",
		"Cgroups of containers and pods that are there and could not be read.")
	m.repairs = map[resources.Kind]*metrics.Counter{
		resources.CPUSet: s.Counter("numalet_cpu_set_repairs_total",
			"CPU sets of containers put right that something else had changed."),
		resources.MemoryNodes: s.Counter("numalet_memory_nodes_repairs_total",
			"Memory nodes of containers put right that something else had changed."),
		resources.CPUQuota: s.Counter("numalet_cpu_quota_repairs_total",
			"CPU quotas of containers and pods put right that something else had changed."),
	}
	return m
}

// Repaired counts a repair of a cgroup.
func (m Cgroups) Repaired(what resources.Kind) { m.repairs[what].Inc() }

// Unread counts a cgroup that exists and could not be read.
func (m Cgroups) Unread() { m.unread.Inc() }
