package stats

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Conversions of the runtime's statistics to those of the summary. Numbers are shared with the
// runtime's answer, which is never changed.

func value(n *runtimeapi.UInt64Value) *uint64 {
	if n == nil {
		return nil
	}
	return &n.Value
}

func cpu(u *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if u == nil || u.UsageCoreNanoSeconds == nil {
		return nil
	}
	return &statsapi.CPUStats{Time: fromNanos(u.GetTimestamp()), PSI: pressure(u.GetPsi()),
		UsageNanoCores: value(u.UsageNanoCores), UsageCoreNanoSeconds: value(u.UsageCoreNanoSeconds)}
}

func memory(u *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if u == nil || u.WorkingSetBytes == nil {
		return nil
	}
	return &statsapi.MemoryStats{Time: fromNanos(u.GetTimestamp()), PSI: pressure(u.GetPsi()),
		AvailableBytes: value(u.AvailableBytes), UsageBytes: value(u.UsageBytes),
		WorkingSetBytes: value(u.WorkingSetBytes), RSSBytes: value(u.RssBytes),
		PageFaults: value(u.PageFaults), MajorPageFaults: value(u.MajorPageFaults)}
}

func io(u *runtimeapi.IoUsage) *statsapi.IOStats {
	if u.GetPsi() == nil {
		return nil
	}
	return &statsapi.IOStats{Time: fromNanos(u.GetTimestamp()), PSI: pressure(u.GetPsi())}
}

func swap(u *runtimeapi.SwapUsage) *statsapi.SwapStats {
	if u == nil {
		return nil
	}
	return &statsapi.SwapStats{Time: fromNanos(u.GetTimestamp()),
		SwapAvailableBytes: value(u.SwapAvailableBytes), SwapUsageBytes: value(u.SwapUsageBytes)}
}

func pressure(p *runtimeapi.PsiStats) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d *runtimeapi.PsiData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(),
			Avg300: d.GetAvg300()}
	}
	return &statsapi.PSIStats{Full: data(p.GetFull()), Some: data(p.GetSome())}
}

func podNetwork(u *runtimeapi.NetworkUsage) *statsapi.NetworkStats {
	if u.GetDefaultInterface() == nil {
		return nil
	}
	one := func(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
		return statsapi.InterfaceStats{Name: i.GetName(), RxBytes: value(i.GetRxBytes()),
			RxErrors: value(i.GetRxErrors()), TxBytes: value(i.GetTxBytes()),
			TxErrors: value(i.GetTxErrors())}
	}
	out := &statsapi.NetworkStats{Time: fromNanos(u.GetTimestamp()),
		InterfaceStats: one(u.GetDefaultInterface())}
	out.Interfaces = append(out.Interfaces, out.InterfaceStats)
	for _, i := range u.GetInterfaces() {
		if i.GetName() != out.Name {
			out.Interfaces = append(out.Interfaces, one(i))
		}
	}
	return out
}

// sum sets the pod's statistics to the sum of its containers.
func sum(p *Pod) {
	s := &p.Stats
	s.CPU, s.Memory = nil, nil
	for _, c := range p.Containers {
		if from := c.Stats.CPU; from != nil {
			if s.CPU == nil {
				s.CPU = &statsapi.CPUStats{Time: from.Time}
			}
			plus(&s.CPU.UsageNanoCores, from.UsageNanoCores)
			plus(&s.CPU.UsageCoreNanoSeconds, from.UsageCoreNanoSeconds)
		}
		if from := c.Stats.Memory; from != nil {
			if s.Memory == nil {
				s.Memory = &statsapi.MemoryStats{Time: from.Time}
			}
			plus(&s.Memory.UsageBytes, from.UsageBytes)
			plus(&s.Memory.WorkingSetBytes, from.WorkingSetBytes)
			plus(&s.Memory.RSSBytes, from.RSSBytes)
			plus(&s.Memory.PageFaults, from.PageFaults)
			plus(&s.Memory.MajorPageFaults, from.MajorPageFaults)
		}
	}
}

// swapOf sets the pod's swap to the sum of its containers: runtimes do not report swap of pods.
func swapOf(p *Pod) {
	for _, c := range p.Containers {
		from := c.Stats.Swap
		if from == nil {
			continue
		}
		if p.Stats.Swap == nil {
			p.Stats.Swap = &statsapi.SwapStats{Time: from.Time}
		}
		plus(&p.Stats.Swap.SwapUsageBytes, from.SwapUsageBytes)
		plus(&p.Stats.Swap.SwapAvailableBytes, from.SwapAvailableBytes)
	}
}

// plus adds n if it is known.
func plus(to **uint64, n *uint64) {
	if n == nil {
		return
	}
	total := *n
	if *to != nil {
		total += **to
	}
	*to = &total
}
