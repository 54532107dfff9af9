package stats

import (
	"errors"
	"io/fs"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cgroups/kernel"
)

// mainInterface is the interface whose numbers stand for the network, as with the kubelet.
const mainInterface = "eth0"

// node reads what the machine, the agent and all pods together use. s has what could be read even
// if there is an error.
func (c *Collector) node(groups *kernel.Reader, s *Snapshot) error {
	counts, err := groups.Read("/")
	memory, memoryErr := c.cfg.Proc.Memory()
	ofRoot(&counts, memory)
	counts.Pressure = c.cfg.Proc.Pressure()
	interfaces, networkErr := c.cfg.Proc.Interfaces()
	s.Machine = Machine{c.cfg.Host, c.cfg.CPUs(), memory.Total, memory.SwapTotal, counts,
		interfaces}
	n := &s.Node
	n.NodeName, n.StartTime = c.cfg.Node, metav1.NewTime(c.boot)
	n.CPU, n.Memory, n.IO = cpuStats(counts), memoryStats(counts), ioStats(counts)
	n.Memory.AvailableBytes = c.available(counts, memory)
	at := metav1.NewTime(s.At)
	n.Swap = &statsapi.SwapStats{Time: at, SwapAvailableBytes: &memory.SwapFree,
		SwapUsageBytes: ptr.To(memory.SwapTotal - min(memory.SwapTotal, memory.SwapFree))}
	n.Network = networkStats(at, interfaces)
	threads, limit, threadsErr := c.cfg.Proc.Threads()
	n.Rlimit = &statsapi.RlimitStats{Time: at, MaxPID: &limit, NumOfRunningProcesses: &threads}
	n.SystemContainers, err = c.systemContainers(groups, err)
	return errors.Join(err, memoryErr, networkErr, threadsErr)
}

// ofRoot completes the counts of the root. As with cgroup v1, huge pages are not in them.
func ofRoot(counts *kernel.Counts, memory kernel.MachineMemory) {
	if counts.Memory.Usage == 0 { // cgroup v2 does not count it for the root
		counts.Memory.Usage = memory.Total - min(memory.Total, memory.Free+memory.HugePages)
	}
}

// available is the memory that is not in the working set of the root. Preallocated huge pages are not
// available either, if they count (HugepageAwareEviction): no pod can use them as memory.
func (c *Collector) available(root kernel.Counts, memory kernel.MachineMemory) *uint64 {
	used := root.Memory.WorkingSet()
	if c.cfg.HugePagesCount {
		used += memory.HugePages
	}
	return ptr.To(memory.Total - min(memory.Total, used))
}

// systemContainers returns the statistics of what runs beside pods, and of all pods together.
func (c *Collector) systemContainers(groups *kernel.Reader, err error) (
	[]statsapi.ContainerStats, error) {
	var out []statsapi.ContainerStats
	in := c.cfg.Groups.Daemons
	var ownErr error
	if in.Agent == "" {
		in.Agent, ownErr = c.cfg.Proc.OwnGroup()
	}
	for _, one := range []struct {
		name, path string
		since      time.Time
	}{
		{statsapi.SystemContainerKubelet, in.Agent, c.started},
		{statsapi.SystemContainerRuntime, in.Runtime, c.boot},
		{statsapi.SystemContainerMisc, in.System, c.boot},
		{statsapi.SystemContainerPods, c.cfg.Groups.Pods, c.boot},
	} {
		if one.path == "" {
			continue
		}
		counts, readErr := groups.Read(one.path)
		if readErr != nil {
			if !errors.Is(readErr, fs.ErrNotExist) { // seen from another namespace
				err = errors.Join(err, readErr)
			}
			continue
		}
		out = append(out, statsapi.ContainerStats{Name: one.name,
			StartTime: metav1.NewTime(one.since), CPU: cpuStats(counts), Memory: memoryStats(counts),
			IO: ioStats(counts), Swap: swapStats(counts)})
	}
	return out, errors.Join(err, ownErr)
}

func networkStats(at metav1.Time, interfaces []kernel.Interface) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: at}
	for _, i := range interfaces {
		one := statsapi.InterfaceStats{Name: i.Name, RxBytes: &i.Rx.Bytes, RxErrors: &i.Rx.Errors,
			TxBytes: &i.Tx.Bytes, TxErrors: &i.Tx.Errors}
		out.Interfaces = append(out.Interfaces, one)
		if i.Name == mainInterface {
			out.InterfaceStats = one
		}
	}
	return out
}

// Conversions of the kernel's counts of a cgroup to the summary.

func cpuStats(c kernel.Counts) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: metav1.NewTime(c.At), UsageCoreNanoSeconds: &c.CPU.Usage,
		PSI: c.Pressure.CPU}
}

func memoryStats(c kernel.Counts) *statsapi.MemoryStats {
	working := c.Memory.WorkingSet()
	out := &statsapi.MemoryStats{Time: metav1.NewTime(c.At), UsageBytes: &c.Memory.Usage,
		WorkingSetBytes: &working, RSSBytes: &c.Memory.RSS, PageFaults: &c.Memory.Faults.All,
		MajorPageFaults: &c.Memory.Faults.Major, PSI: c.Pressure.Memory}
	if limit := c.Memory.Limit; limit > 0 {
		out.AvailableBytes = ptr.To(limit - min(limit, working))
	}
	return out
}

func ioStats(c kernel.Counts) *statsapi.IOStats {
	if c.Pressure.IO == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(c.At), PSI: c.Pressure.IO}
}

func swapStats(c kernel.Counts) *statsapi.SwapStats {
	if c.Swap == nil {
		return nil
	}
	out := &statsapi.SwapStats{Time: metav1.NewTime(c.At), SwapUsageBytes: &c.Swap.Usage}
	if limit := c.Swap.Limit; limit > 0 {
		out.SwapAvailableBytes = ptr.To(limit - min(limit, c.Swap.Usage))
	}
	return out
}

// fromNanos converts a time of the runtime.
func fromNanos(n int64) metav1.Time { return metav1.NewTime(time.Unix(0, n)) }
