package stats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// owner holds what one owner uses, and the labels that name it. Each metric reads one field.
type owner struct {
	labels string
	consumption
	start   time.Time
	at      time.Time // when it was measured
	cgroup  group     // empty if the statistics come from the runtime alone
	machine *Machine
}

// consumption counts what an owner uses; zero if not known.
type consumption struct {
	cpu     statsapi.CPUStats
	memory  statsapi.MemoryStats
	io      statsapi.IOStats
	swap    statsapi.SwapStats
	network statsapi.NetworkStats
	disk    statsapi.FsStats // a container's writable layer
}

func consumed(c *statsapi.CPUStats, m *statsapi.MemoryStats, s *statsapi.SwapStats) consumption {
	return consumption{cpu: ptr.Deref(c, statsapi.CPUStats{}), memory: ptr.Deref(m, statsapi.MemoryStats{}),
		swap: ptr.Deref(s, statsapi.SwapStats{})}
}

// family is a metric; neighbours of the same name differ in their extra labels.
type family struct {
	name, kind, help string
	extra            []string // alternating names and values of labels
	of               valueOf
}

// valueOf returns a metric's value, the time of the value, and whether the owner has it.
type valueOf func(o *owner) (value float64, at time.Time, ok bool)

// resourceMetrics returns the kubelet's /metrics/resource, and nothing more: metrics-server and
// autoscalers read it often. Without a snapshot it has only the error.
func resourceMetrics(s *Snapshot, failed bool) []byte {
	e := &exposition{}
	if s != nil {
		var pods, containers []owner
		for _, p := range s.Pods {
			ref := p.Stats.PodRef
			pods = append(pods, owner{labels: labels("namespace", ref.Namespace, "pod", ref.Name),
				consumption: consumed(p.Stats.CPU, p.Stats.Memory, p.Stats.Swap)})
			for _, c := range p.Containers {
				containers = append(containers, owner{labels: labels("container", c.Stats.Name,
					"namespace", ref.Namespace, "pod", ref.Name), start: c.Stats.StartTime.Time,
					consumption: consumed(c.Stats.CPU, c.Stats.Memory, c.Stats.Swap)})
			}
		}
		node := []owner{{consumption: consumed(s.Node.CPU, s.Node.Memory, s.Node.Swap)}}
		e.owners(containerFamilies, containers)
		e.owners(nodeFamilies, node)
		e.owners(podFamilies, pods)
	}
	e.family("resource_scrape_error", gaugeType,
		"[STABLE] 1 if something of the node or of its pods could not be read, else 0.")
	value := 0.0
	if failed {
		value = 1
	}
	e.sample("resource_scrape_error", point{value: value})
	return e.text
}

// owners writes the metrics that were not written before.
func (e *exposition) owners(families []family, all []owner) {
	last := ""
	for _, f := range families {
		begun := f.name == last
		if !begun && e.families.Has(f.name) {
			continue
		}
		extra := labels(f.extra...)
		for i := range all {
			o := &all[i]
			value, at, ok := f.of(o)
			if !ok {
				continue
			}
			if !begun {
				e.family(f.name, f.kind, f.help)
				begun, last = true, f.name
			}
			e.sample(f.name, point{o.labels, extra, value, at})
		}
	}
}

var (
	nodeFamilies      = use("node")
	podFamilies       = use("pod")
	containerFamilies = append(use("container"),
		family{"container_start_time_seconds", gaugeType,
			"[STABLE] When the container was started, in seconds since the epoch.", nil,
			func(o *owner) (float64, time.Time, bool) {
				return seconds(o.start), time.Time{}, o.start.Unix() > 0
			}},
		family{"container_swap_limit_bytes", gaugeType,
			"[ALPHA] Swap that the container may use, in bytes.", nil, swapLimit})
)

// use returns the metrics that every owner has.
func use(of string) []family {
	return []family{
		{of + "_cpu_usage_seconds_total", counterType,
			"[STABLE] CPU time that the " + of + " has used, in seconds.", nil, cpuSeconds},
		{of + "_memory_working_set_bytes", gaugeType, "[STABLE] Memory of the " + of +
			" that the kernel cannot easily take back, in bytes.", nil, workingSet},
		{of + "_swap_usage_bytes", gaugeType,
			"[ALPHA] Swap that the " + of + " uses, in bytes.", nil, swapUsage},
	}
}

// reported returns a number as a metric's value, if it is known.
func reported(n *uint64, at metav1.Time) (float64, time.Time, bool) {
	return float64(ptr.Deref(n, 0)), at.Time, n != nil
}

func cpuSeconds(o *owner) (float64, time.Time, bool) {
	nanos, at, ok := reported(o.cpu.UsageCoreNanoSeconds, o.cpu.Time)
	return nanos / 1e9, at, ok
}

func workingSet(o *owner) (float64, time.Time, bool) {
	return reported(o.memory.WorkingSetBytes, o.memory.Time)
}

func swapUsage(o *owner) (float64, time.Time, bool) {
	return reported(o.swap.SwapUsageBytes, o.swap.Time)
}

func swapLimit(o *owner) (float64, time.Time, bool) {
	used, _, _ := reported(o.swap.SwapUsageBytes, o.swap.Time)
	left, at, ok := reported(o.swap.SwapAvailableBytes, o.swap.Time)
	return used + left, at, ok && o.swap.SwapUsageBytes != nil
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
