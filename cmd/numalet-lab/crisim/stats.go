package crisim

import (
	"context"
	"hash/fnv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The usage of simulated pods is invented. The container's id determines a constant share of a CPU,
// up to 50 millicores, and a constant amount of memory. Counters start with the container.

// usage is a container's consumption at one moment.
type usage struct{ nanos, nanoCores, memory, rss, disk uint64 }

func (u *usage) add(o usage) {
	u.nanos += o.nanos
	u.nanoCores += o.nanoCores
	u.memory += o.memory
	u.rss += o.rss
}

// usage is zero for a container that does not run.
func (c *container) usageLocked(now int64) usage {
	if c.life.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return usage{}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.id)) // never fails
	share := uint64(h.Sum32()%50 + 1)
	memory := (share + 8) << 20
	return usage{
		nanos: uint64(max(now-c.life.started, 0)) * share / 1000, nanoCores: share * 1e6,
		memory: memory, rss: memory / 2, disk: share << 10,
	}
}

func number(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func (u usage) cpu(now int64) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{
		Timestamp: now, UsageCoreNanoSeconds: number(u.nanos), UsageNanoCores: number(u.nanoCores),
	}
}

func (u usage) memoryUsage(now int64) *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: number(u.memory), UsageBytes: number(u.memory),
		RssBytes: number(u.rss), PageFaults: number(u.rss >> 12), MajorPageFaults: number(0),
	}
}

func (c *container) statsLocked(now int64) (*runtimeapi.ContainerStats, usage) {
	u := c.usageLocked(now)
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(),
			Annotations: c.config.GetAnnotations(),
		},
		Cpu: u.cpu(now), Memory: u.memoryUsage(now),
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
			UsedBytes: number(u.disk), InodesUsed: number(1),
		},
		Swap: &runtimeapi.SwapUsage{Timestamp: now, SwapUsageBytes: number(0)},
	}, u
}

func (c *container) runsLocked() bool {
	return c.life.state == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// statsLocked returns the statistics of a ready sandbox and its running containers.
func (sb *sandbox) statsLocked(all []*container) *runtimeapi.PodSandboxStats {
	now := time.Now().UnixNano()
	var sum usage
	var containers []*runtimeapi.ContainerStats
	for _, c := range all {
		if c.runsLocked() {
			one, u := c.statsLocked(now)
			containers = append(containers, one)
			sum.add(u)
		}
	}
	out := &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: sb.id, Metadata: sb.config.GetMetadata(), Labels: sb.config.GetLabels(),
			Annotations: sb.config.GetAnnotations(),
		},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu: sum.cpu(now), Memory: sum.memoryUsage(now), Containers: containers,
			Process: &runtimeapi.ProcessUsage{
				Timestamp: now, ProcessCount: number(uint64(len(containers) + 1)),
			},
		},
	}
	if sb.ip != "" { // else it is in the host's network
		seconds := uint64(max(now-sb.created, 0)) / 1e9
		eth0 := &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: number(seconds * 100), RxErrors: number(0),
			TxBytes: number(seconds * 50), TxErrors: number(0),
		}
		out.Linux.Network = &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: eth0}
	}
	return out
}

// ContainerStats returns a container's statistics. Its usage is zero if it does not run.
func (r *runtimeService) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	stats, _ := c.statsLocked(time.Now().UnixNano())
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, nil
}

// PodSandboxStats returns the statistics of a sandbox and its running containers.
func (r *runtimeService) PodSandboxStats(
	_ context.Context, req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	sb, err := r.store.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	all := r.store.inLocked(sb.id)
	return &runtimeapi.PodSandboxStatsResponse{Stats: sb.statsLocked(all)}, nil
}

// ListPodSandboxStats covers ready sandboxes, filtered by id and labels.
func (r *runtimeService) ListPodSandboxStats(
	_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := &runtimeapi.PodSandboxFilter{
		Id: req.GetFilter().GetId(), LabelSelector: req.GetFilter().GetLabelSelector(),
	}
	out := &runtimeapi.ListPodSandboxStatsResponse{}
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	in := func(sb *sandbox) bool { return sb.ready && matchSandbox(f, sb) }
	for _, sb := range oldest(s.sandboxes, in) {
		out.Stats = append(out.Stats, sb.statsLocked(s.inLocked(sb.id)))
	}
	return out, nil
}

// ListContainerStats covers running containers, filtered by id, sandbox and labels.
func (r *runtimeService) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := &runtimeapi.ContainerFilter{
		Id: req.GetFilter().GetId(), PodSandboxId: req.GetFilter().GetPodSandboxId(),
		LabelSelector: req.GetFilter().GetLabelSelector(),
	}
	now := time.Now().UnixNano()
	out := &runtimeapi.ListContainerStatsResponse{}
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	in := func(c *container) bool { return c.runsLocked() && matchContainer(f, c) }
	for _, c := range oldest(s.containers, in) {
		one, _ := c.statsLocked(now)
		out.Stats = append(out.Stats, one)
	}
	return out, nil
}

// simulatedMetrics describes the metrics that the runtime reports beside the statistics.
var simulatedMetrics = []*runtimeapi.MetricDescriptor{{
	Name: "container_processes", Help: "Number of processes running inside the container.",
	LabelKeys: []string{"pod", "namespace", "container", "id", "image"},
}}

// ListMetricDescriptors describes the metrics of ListPodSandboxMetrics.
func (r *runtimeService) ListMetricDescriptors(
	context.Context, *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: simulatedMetrics}, nil
}

// ListPodSandboxMetrics covers ready sandboxes and their running containers.
func (r *runtimeService) ListPodSandboxMetrics(
	context.Context, *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	now := time.Now().UnixNano()
	out := &runtimeapi.ListPodSandboxMetricsResponse{}
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range oldest(s.sandboxes, func(sb *sandbox) bool { return sb.ready }) {
		one := &runtimeapi.PodSandboxMetrics{PodSandboxId: sb.id}
		for _, c := range s.inLocked(sb.id) {
			if !c.runsLocked() {
				continue
			}
			pod := sb.config.GetMetadata()
			one.ContainerMetrics = append(one.ContainerMetrics, &runtimeapi.ContainerMetrics{
				ContainerId: c.id,
				Metrics: []*runtimeapi.Metric{{
					Name: simulatedMetrics[0].Name, Timestamp: now,
					MetricType: runtimeapi.MetricType_GAUGE, Value: number(1),
					LabelValues: []string{pod.GetName(), pod.GetNamespace(),
						c.config.GetMetadata().GetName(), c.id, c.config.GetImage().GetImage()},
				}},
			})
		}
		out.PodMetrics = append(out.PodMetrics, one)
	}
	return out, nil
}
