package sim

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeConfig tells the configured cgroup driver.
func (r *runtimeService) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	switch r.cfg.CgroupDriver {
	case "systemd":
		driver = runtimeapi.CgroupDriver_SYSTEMD
	case "none":
		return nil, status.Error(codes.Unimplemented, "method RuntimeConfig not implemented")
	}
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver},
	}, nil
}

// UpdateRuntimeConfig accepts and ignores the pod CIDR.
func (r *runtimeService) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// Status reports the conditions as set.
func (r *runtimeService) Status(
	context.Context, *runtimeapi.StatusRequest,
) (*runtimeapi.StatusResponse, error) {
	ready := r.ready()
	condition := func(kind string, ok bool, reason string) *runtimeapi.RuntimeCondition {
		c := &runtimeapi.RuntimeCondition{Type: kind, Status: ok}
		if !ok {
			c.Reason, c.Message = reason, ready.Message
		}
		return c
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			condition(runtimeapi.RuntimeReady, ready.Runtime, "RuntimeNotReady"),
			condition(runtimeapi.NetworkReady, ready.Network, "NetworkPluginNotReady"),
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{
			Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true},
		}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// ReopenContainerLog makes the log anew that was moved away.
func (r *runtimeService) ReopenContainerLog(
	_ context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if _, running := r.store.stateOf(c); !running {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.id)
	}
	if path := logPath(c); path != "" {
		appendTo(path, os.O_CREATE|os.O_WRONLY, "")
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// UpdatePodSandboxResources checks that the sandbox exists.
func (r *runtimeService) UpdatePodSandboxResources(
	_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if _, err := r.store.sandboxByID(req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// ContainerStats reports a container that uses nothing.
func (r *runtimeService) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: containerStats(c)}, nil
}

// ListContainerStats reports the running containers.
func (r *runtimeService) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	out := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.store.in(f.GetPodSandboxId()) {
		_, running := r.store.stateOf(c)
		wanted := f.GetId() == "" || f.GetId() == c.id
		if running && wanted && matchLabels(f.GetLabelSelector(), c.config.GetLabels()) {
			out.Stats = append(out.Stats, containerStats(c))
		}
	}
	return out, nil
}

// PodSandboxStats reports a sandbox and its containers.
func (r *runtimeService) PodSandboxStats(
	_ context.Context, req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	sb, err := r.store.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.sandboxStats(sb)}, nil
}

// ListPodSandboxStats reports every sandbox that matches.
func (r *runtimeService) ListPodSandboxStats(
	_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := req.GetFilter()
	out := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, listed := range r.store.listSandboxes(&runtimeapi.PodSandboxFilter{
		Id: f.GetId(), LabelSelector: f.GetLabelSelector(),
	}) {
		if sb, err := r.store.sandboxByID(listed.GetId()); err == nil {
			out.Stats = append(out.Stats, r.sandboxStats(sb))
		}
	}
	return out, nil
}

func (r *runtimeService) sandboxStats(sb *sandbox) *runtimeapi.PodSandboxStats {
	out := &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id:          sb.id,
			Metadata:    sb.config.GetMetadata(),
			Labels:      sb.config.GetLabels(),
			Annotations: sb.config.GetAnnotations(),
		},
		Linux: &runtimeapi.LinuxPodSandboxStats{Cpu: noCPU(), Memory: noMemory()},
	}
	for _, c := range r.store.in(sb.id) {
		out.Linux.Containers = append(out.Linux.Containers, containerStats(c))
	}
	return out
}

func containerStats(c *container) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          c.id,
			Metadata:    c.config.GetMetadata(),
			Labels:      c.config.GetLabels(),
			Annotations: c.config.GetAnnotations(),
		},
		Cpu:    noCPU(),
		Memory: noMemory(),
	}
}

func noCPU() *runtimeapi.CpuUsage {
	zero := &runtimeapi.UInt64Value{}
	return &runtimeapi.CpuUsage{
		Timestamp: time.Now().UnixNano(), UsageCoreNanoSeconds: zero, UsageNanoCores: zero,
	}
}

func noMemory() *runtimeapi.MemoryUsage {
	zero := &runtimeapi.UInt64Value{}
	return &runtimeapi.MemoryUsage{
		Timestamp: time.Now().UnixNano(), WorkingSetBytes: zero, UsageBytes: zero, RssBytes: zero,
	}
}
