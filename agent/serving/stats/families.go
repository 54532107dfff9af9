package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cgroups/kernel"
)

// exactFamilies are the metrics of cAdvisor that the snapshot provides.
var exactFamilies = []family{
	{"container_cpu_usage_seconds_total", counterType, "CPU time used, in seconds.",
		[]string{"cpu", "total"}, cpuSeconds},
	{"container_memory_usage_bytes", gaugeType, "Memory used, with all caches, in bytes.", nil,
		ofMemory(func(m statsapi.MemoryStats) *uint64 { return m.UsageBytes })},
	{"container_memory_working_set_bytes", gaugeType,
		"Memory that the kernel cannot easily take back, in bytes.", nil, workingSet},
	{"container_memory_rss", gaugeType, "Memory that is of no file, in bytes.", nil,
		ofMemory(func(m statsapi.MemoryStats) *uint64 { return m.RSSBytes })},
	{failures, counterType, faults, []string{"failure_type", "pgfault", "scope", "container"},
		ofMemory(func(m statsapi.MemoryStats) *uint64 { return m.PageFaults })},
	{failures, counterType, faults, []string{"failure_type", "pgmajfault", "scope", "container"},
		ofMemory(func(m statsapi.MemoryStats) *uint64 { return m.MajorPageFaults })},
	{"container_start_time_seconds", gaugeType, "Start, in seconds since the epoch.", nil,
		func(o *owner) (float64, time.Time, bool) {
			return epoch(o.start), time.Time{}, o.start.Unix() > 0
		}},
	{"container_last_seen", gaugeType, "When it was last seen, in seconds since the epoch.", nil,
		func(o *owner) (float64, time.Time, bool) { return epoch(o.at), o.at, true }},
	pressured("cpu_stalled", "no process could run for lack of CPUs", cpuPressure, full),
	pressured("cpu_waiting", "processes waited for a CPU", cpuPressure, some),
	pressured("memory_stalled", "no process could run for lack of memory", memoryPressure, full),
	pressured("memory_waiting", "processes waited for memory", memoryPressure, some),
	pressured("io_stalled", "no process could run for waiting for I/O", ioPressure, full),
	pressured("io_waiting", "processes waited for I/O", ioPressure, some),
}

const (
	failures = "container_memory_failures_total"
	faults   = "Page faults, and those for which the kernel had to read."
)

func ofMemory(field func(statsapi.MemoryStats) *uint64) valueOf {
	return func(o *owner) (float64, time.Time, bool) { return reported(field(o.memory), o.memory.Time) }
}

func full(s *statsapi.PSIStats) uint64 { return s.Full.Total }
func some(s *statsapi.PSIStats) uint64 { return s.Some.Total }

// cpuPressure, memoryPressure and ioPressure return nil if the kernel does not report it.

func cpuPressure(o *owner) (*statsapi.PSIStats, time.Time) { return o.cpu.PSI, o.cpu.Time.Time }

func memoryPressure(o *owner) (*statsapi.PSIStats, time.Time) {
	return o.memory.PSI, o.memory.Time.Time
}

func ioPressure(o *owner) (*statsapi.PSIStats, time.Time) { return o.io.PSI, o.io.Time.Time }

func pressured(what, help string, of func(*owner) (*statsapi.PSIStats, time.Time),
	total func(*statsapi.PSIStats) uint64) family {
	return family{"container_pressure_" + what + "_seconds_total", counterType,
		"Time in which " + help + ", in seconds.", nil,
		func(o *owner) (float64, time.Time, bool) {
			psi, at := of(o)
			if psi == nil {
				return 0, at, false
			}
			return float64(total(psi)) / 1e9, at, true
		}}
}

// groupFamilies are the metrics that only cgroups provide.
var groupFamilies = []family{
	inGroup("container_cpu_user_seconds_total", counterType, "CPU time used outside the kernel, "+
		"in seconds.", func(c *kernel.Counts) float64 { return float64(c.CPU.User) / 1e9 }),
	inGroup("container_cpu_system_seconds_total", counterType, "CPU time used in the kernel, in "+
		"seconds.", func(c *kernel.Counts) float64 { return float64(c.CPU.System) / 1e9 }),
	quota("container_cpu_cfs_periods_total", counterType, "Periods of the CPU quota.",
		func(c *kernel.Counts) float64 { return float64(c.CPU.Periods) }),
	quota("container_cpu_cfs_throttled_periods_total", counterType,
		"Periods in which the CPU quota was used up.",
		func(c *kernel.Counts) float64 { return float64(c.CPU.Throttled) }),
	quota("container_cpu_cfs_throttled_seconds_total", counterType,
		"Time waited after the CPU quota was used up, in seconds.",
		func(c *kernel.Counts) float64 { return float64(c.CPU.ThrottledTime) / 1e9 }),
	quota("container_spec_cpu_period", gaugeType, "Period of the CPU quota, in microseconds.",
		func(c *kernel.Counts) float64 { return float64(c.CPU.Period) }),
	quota("container_spec_cpu_quota", gaugeType, "CPU quota in a period, in microseconds.",
		func(c *kernel.Counts) float64 { return float64(c.CPU.Quota) }),
	inGroup("container_spec_cpu_shares", gaugeType, "CPU shares.",
		func(c *kernel.Counts) float64 { return float64(c.CPU.Shares) }),
	inGroup("container_memory_cache", gaugeType, "Memory of files, in bytes.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.Cache) }),
	inGroup("container_memory_mapped_file", gaugeType, "Memory of mapped files, in bytes.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.Mapped) }),
	inGroup("container_memory_kernel_usage", gaugeType, "Memory of the kernel's own, in bytes.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.Kernel) }),
	inGroup("container_memory_swap", gaugeType, "Swap used, in bytes.",
		func(c *kernel.Counts) float64 { return float64(swapCounts(c).Usage) }),
	inGroup("container_memory_failcnt", counterType, "How often the memory limit was met.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.Failures) }),
	inGroup("container_memory_max_usage_bytes", gaugeType, "Most memory used so far, in bytes.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.Peak) }),
	inGroup("container_memory_total_active_file_bytes", gaugeType,
		"Memory of files in use, in bytes.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.ActiveFile) }),
	inGroup("container_memory_total_inactive_file_bytes", gaugeType,
		"Memory of files that was not used for a while, in bytes.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.InactiveFile) }),
	inGroup("container_oom_events_total", counterType, "Processes killed for lack of memory.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.OutOfMemoryKillings) }),
	inGroup("container_processes", gaugeType, "Processes and threads.",
		func(c *kernel.Counts) float64 { return float64(c.Processes) }),
	inGroup("container_threads", gaugeType, "Threads.",
		func(c *kernel.Counts) float64 { return float64(c.Processes) }),
	inGroup("container_spec_memory_limit_bytes", gaugeType, "Memory limit, 0: none.",
		func(c *kernel.Counts) float64 { return float64(c.Memory.Limit) }),
	inGroup("container_spec_memory_swap_limit_bytes", gaugeType, "Swap limit, 0: none.",
		func(c *kernel.Counts) float64 { return float64(swapCounts(c).Limit) }),
}

func swapCounts(c *kernel.Counts) kernel.Swap {
	if c.Swap == nil {
		return kernel.Swap{}
	}
	return *c.Swap
}

func inGroup(name, kind, help string, of func(*kernel.Counts) float64) family {
	return family{name, kind, help, nil, func(o *owner) (float64, time.Time, bool) {
		if o.cgroup.counts == nil {
			return 0, time.Time{}, false
		}
		return of(o.cgroup.counts), o.cgroup.counts.At, true
	}}
}

// quota is a family for owners with a CPU quota.
func quota(name, kind, help string, of func(*kernel.Counts) float64) family {
	f := inGroup(name, kind, help, of)
	all := f.of
	f.of = func(o *owner) (float64, time.Time, bool) {
		if o.cgroup.counts == nil || o.cgroup.counts.CPU.Quota == 0 {
			return 0, time.Time{}, false
		}
		return all(o)
	}
	return f
}

var machineFamilies = []family{
	machineHas("machine_cpu_cores", "Logical CPUs of the machine.",
		func(m *Machine) float64 { return float64(m.CPUs.Logical) }),
	machineHas("machine_cpu_physical_cores", "Cores of the machine.",
		func(m *Machine) float64 { return float64(m.CPUs.Cores) }),
	machineHas("machine_cpu_sockets", "Sockets of the machine.",
		func(m *Machine) float64 { return float64(m.CPUs.Sockets) }),
	machineHas("machine_memory_bytes", "Memory of the machine, in bytes.",
		func(m *Machine) float64 { return float64(m.Memory) }),
	machineHas("machine_swap_bytes", "Swap of the machine, in bytes.",
		func(m *Machine) float64 { return float64(m.Swap) }),
}

func machineHas(name, help string, of func(*Machine) float64) family {
	return family{name, gaugeType, help, nil, func(o *owner) (float64, time.Time, bool) {
		return of(o.machine), time.Time{}, true
	}}
}
