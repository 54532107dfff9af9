package metrics

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology"
)

// placedMetrics tells what containers hold of NUMA nodes beside CPUs. A holding that spans several nodes
// is reported under all of them together, since its distribution is not known.
type placedMetrics struct{ memory, devices placedGauge }

func newPlacedMetrics(s *metric.Set) placedMetrics {
	gauge := func(name, help string) placedGauge {
		return placedGauge{s.Gauges(name, help, "resource", "numa_nodes"), sets.New[placedAt]()}
	}
	return placedMetrics{
		memory: gauge("numalet_memory_allocation_per_numa_bytes",
			"Memory and huge pages that containers were given on NUMA nodes, by resource and nodes."),
		devices: gauge("numalet_device_allocation_per_numa",
			"Devices that containers have, by resource and the NUMA nodes that they are on; "+
				"without a node those that are on none in particular."),
	}
}

// placedAt is a resource on NUMA nodes.
type placedAt struct{ resource, nodes string }

// placedGauge is a gauge with series only for values that are held.
type placedGauge struct {
	gauge *metrics.GaugeVec
	shown sets.Set[placedAt]
}

func (g placedGauge) show(now map[placedAt]float64) {
	for at, value := range now {
		g.gauge.WithLabelValues(at.resource, at.nodes).Set(value)
		g.shown.Insert(at)
	}
	for at := range g.shown {
		if _, still := now[at]; !still {
			g.gauge.Delete(map[string]string{"resource": at.resource, "numa_nodes": at.nodes})
			g.shown.Delete(at)
		}
	}
}

// Placed records what the pods hold. Only one goroutine calls it.
func (m *Metrics) Placed(pods []allocation.Pod) {
	memory := map[placedAt]float64{}
	for _, b := range allocation.HoldingsOf(pods...).Memory() {
		memory[placedAt{string(b.Resource), b.Nodes.String()}] += float64(b.Size)
	}
	m.placement.memory.show(memory)
	devices := map[placedAt]float64{}
	for resource, nodes := range devicesOf(pods) {
		for _, at := range nodes {
			devices[placedAt{resource, at.String()}]++
		}
	}
	m.placement.devices.show(devices)
}

// devicesOf returns the nodes of each device by resource and id. A device of an init container and
// a later container appears once.
func devicesOf(pods []allocation.Pod) map[string]map[string]topology.NodeSet {
	out := map[string]map[string]topology.NodeSet{}
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices() {
				if out[d.Resource] == nil {
					out[d.Resource] = map[string]topology.NodeSet{}
				}
				for i, id := range d.IDs {
					out[d.Resource][id] = d.NodesOf(i)
				}
			}
		}
	}
	return out
}
