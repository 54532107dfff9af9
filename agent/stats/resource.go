package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// owner is who uses something, and the labels that name it.
type owner struct {
	labels string
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
	swap   *statsapi.SwapStats
	start  time.Time // of a container
}

// resourceFamily is a metric of one kind of owner.
type resourceFamily struct {
	name, kind, help string
	of               func(o owner) (value float64, at time.Time, ok bool)
}

// resourceMetrics are the kubelet's /metrics/resource: nothing more, since metrics-server and
// autoscalers read it often. A nil snapshot has but the error.
func resourceMetrics(s *Snapshot, failed bool) []byte {
	e := &exposition{}
	if s != nil {
		var pods, containers []owner
		for _, p := range s.Pods {
			ref := p.Stats.PodRef
			pods = append(pods, owner{labels("namespace", ref.Namespace, "pod", ref.Name),
				p.Stats.CPU, p.Stats.Memory, p.Stats.Swap, time.Time{}})
			for _, c := range p.Containers {
				containers = append(containers, owner{
					labels("container", c.Stats.Name, "namespace", ref.Namespace, "pod", ref.Name),
					c.Stats.CPU, c.Stats.Memory, c.Stats.Swap, c.Stats.StartTime.Time,
				})
			}
		}
		node := []owner{{"", s.Node.CPU, s.Node.Memory, s.Node.Swap, time.Time{}}}
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
	e.sample("resource_scrape_error", "", value, time.Time{})
	return e.text
}

func (e *exposition) owners(families []resourceFamily, all []owner) {
	for _, f := range families {
		begun := false
		for _, o := range all {
			value, at, ok := f.of(o)
			if !ok {
				continue
			}
			if !begun {
				e.family(f.name, f.kind, f.help)
				begun = true
			}
			e.sample(f.name, o.labels, value, at)
		}
	}
}

var containerFamilies = append(use("container"), []resourceFamily{
	{"container_start_time_seconds", gaugeType,
		"[STABLE] When the container was started, in seconds since the epoch.",
		func(o owner) (float64, time.Time, bool) {
			return seconds(o.start), time.Time{}, o.start.Unix() > 0
		}},
	{"container_swap_limit_bytes", gaugeType,
		"[ALPHA] Swap that the container may use, in bytes.",
		func(o owner) (float64, time.Time, bool) {
			if o.swap == nil || o.swap.SwapUsageBytes == nil || o.swap.SwapAvailableBytes == nil {
				return 0, time.Time{}, false
			}
			return float64(*o.swap.SwapUsageBytes + *o.swap.SwapAvailableBytes), o.swap.Time.Time,
				true
		}},
}...)

var (
	nodeFamilies = use("node")
	podFamilies  = use("pod")
)

// use are the metrics that every owner has.
func use(of string) []resourceFamily {
	return []resourceFamily{
		{of + "_cpu_usage_seconds_total", counterType,
			"[STABLE] CPU time that the " + of + " has used, in seconds.",
			func(o owner) (float64, time.Time, bool) {
				if o.cpu == nil || o.cpu.UsageCoreNanoSeconds == nil {
					return 0, time.Time{}, false
				}
				return float64(*o.cpu.UsageCoreNanoSeconds) / 1e9, o.cpu.Time.Time, true
			}},
		{of + "_memory_working_set_bytes", gaugeType,
			"[STABLE] Memory of the " + of + " that the kernel cannot easily take back, in bytes.",
			func(o owner) (float64, time.Time, bool) {
				if o.memory == nil || o.memory.WorkingSetBytes == nil {
					return 0, time.Time{}, false
				}
				return float64(*o.memory.WorkingSetBytes), o.memory.Time.Time, true
			}},
		{of + "_swap_usage_bytes", gaugeType,
			"[ALPHA] Swap that the " + of + " uses, in bytes.",
			func(o owner) (float64, time.Time, bool) {
				if o.swap == nil || o.swap.SwapUsageBytes == nil {
					return 0, time.Time{}, false
				}
				return float64(*o.swap.SwapUsageBytes), o.swap.Time.Time, true
			}},
	}
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
