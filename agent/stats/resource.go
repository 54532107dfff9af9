package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// owner is who uses something, and the labels that name it. Each metric looks at one of the others.
type owner struct {
	labels  string
	cpu     *statsapi.CPUStats
	memory  *statsapi.MemoryStats
	io      *statsapi.IOStats
	swap    *statsapi.SwapStats
	start   time.Time
	at      time.Time // when it was seen
	group             // its cgroup; empty for those that are only told of by the runtime
	machine *Machine
}

// family is a metric; several in a row may be the same with other extra labels.
type family struct {
	name, kind, help string
	extra            []string // labels, names and values by turns
	of               valueOf
}

// valueOf is the value of a metric, the time at which it was true, and whether the owner has it.
type valueOf func(o owner) (value float64, at time.Time, ok bool)

// resourceMetrics are the kubelet's /metrics/resource: nothing more, since metrics-server and
// autoscalers read it often. A nil snapshot has but the error.
func resourceMetrics(s *Snapshot, failed bool) []byte {
	e := &exposition{}
	if s != nil {
		var pods, containers []owner
		for _, p := range s.Pods {
			ref := p.Stats.PodRef
			pods = append(pods, owner{labels: labels("namespace", ref.Namespace, "pod", ref.Name),
				cpu: p.Stats.CPU, memory: p.Stats.Memory, swap: p.Stats.Swap})
			for _, c := range p.Containers {
				containers = append(containers, owner{labels: labels("container", c.Stats.Name,
					"namespace", ref.Namespace, "pod", ref.Name), cpu: c.Stats.CPU,
					memory: c.Stats.Memory, swap: c.Stats.Swap, start: c.Stats.StartTime.Time})
			}
		}
		node := []owner{{cpu: s.Node.CPU, memory: s.Node.Memory, swap: s.Node.Swap}}
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

// owners writes metrics, but for those that were written before.
func (e *exposition) owners(families []family, all []owner) {
	last := ""
	for _, f := range families {
		begun := f.name == last
		if !begun && e.families.Has(f.name) {
			continue
		}
		extra := labels(f.extra...)
		for _, o := range all {
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
			func(o owner) (float64, time.Time, bool) {
				return seconds(o.start), time.Time{}, o.start.Unix() > 0
			}},
		family{"container_swap_limit_bytes", gaugeType,
			"[ALPHA] Swap that the container may use, in bytes.", nil, swapLimit})
)

// use are the metrics that every owner has.
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

func cpuSeconds(o owner) (float64, time.Time, bool) {
	if o.cpu == nil || o.cpu.UsageCoreNanoSeconds == nil {
		return 0, time.Time{}, false
	}
	return float64(*o.cpu.UsageCoreNanoSeconds) / 1e9, o.cpu.Time.Time, true
}

func workingSet(o owner) (float64, time.Time, bool) {
	if o.memory == nil || o.memory.WorkingSetBytes == nil {
		return 0, time.Time{}, false
	}
	return float64(*o.memory.WorkingSetBytes), o.memory.Time.Time, true
}

func swapUsage(o owner) (float64, time.Time, bool) {
	if o.swap == nil || o.swap.SwapUsageBytes == nil {
		return 0, time.Time{}, false
	}
	return float64(*o.swap.SwapUsageBytes), o.swap.Time.Time, true
}

func swapLimit(o owner) (float64, time.Time, bool) {
	if o.swap == nil || o.swap.SwapUsageBytes == nil || o.swap.SwapAvailableBytes == nil {
		return 0, time.Time{}, false
	}
	return float64(*o.swap.SwapUsageBytes + *o.swap.SwapAvailableBytes), o.swap.Time.Time, true
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
