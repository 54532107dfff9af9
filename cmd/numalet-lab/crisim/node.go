package crisim

import (
	"context"
	"encoding/json"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeConfig returns the configured cgroup driver.
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

// UpdateRuntimeConfig accepts and remembers the pod CIDR.
func (r *runtimeService) UpdateRuntimeConfig(
	_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	cidr := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.podCIDR = cidr
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// Status reports the conditions as set; if asked for more, where it looks for CDI specs, as containerd.
func (r *runtimeService) Status(
	_ context.Context, req *runtimeapi.StatusRequest,
) (*runtimeapi.StatusResponse, error) {
	ready := r.ready()
	condition := func(kind string, ok bool, reason string) *runtimeapi.RuntimeCondition {
		c := &runtimeapi.RuntimeCondition{Type: kind, Status: ok}
		if !ok {
			c.Reason, c.Message = reason, ready.Message
		}
		return c
	}
	info := map[string]string{}
	if req.GetVerbose() {
		config, err := json.Marshal(map[string]any{"cdiSpecDirs": r.cfg.CDIDirs})
		if err != nil {
			return nil, err
		}
		info["config"] = string(config)
	}
	return &runtimeapi.StatusResponse{
		Info: info,
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			condition(runtimeapi.RuntimeReady, ready.Runtime, "RuntimeNotReady"),
			condition(runtimeapi.NetworkReady, ready.Network, "NetworkPluginNotReady"),
		}},
		RuntimeHandlers: r.handlers(),
		Features: &runtimeapi.RuntimeFeatures{
			SupplementalGroupsPolicy: true, UserNamespacesHostNetwork: true,
		},
	}, nil
}

// handlers lists the default handler, which has no name, and the configured ones. The latter lack
// recursive read-only mounts, as handlers that run virtual machines do.
func (r *runtimeService) handlers() (out []*runtimeapi.RuntimeHandler) {
	for _, name := range append([]string{""}, r.cfg.Handlers...) {
		out = append(out, &runtimeapi.RuntimeHandler{
			Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: name == "", UserNamespaces: true,
			},
		})
	}
	return out
}

// ReopenContainerLog creates the log file again after it was moved away.
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
