package crisim

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeService serves CRI's RuntimeService.
type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*Server
}

// Version returns what the kubelet expects.
func (r *runtimeService) Version(
	context.Context, *runtimeapi.VersionRequest,
) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:           "0.1.0",
		RuntimeName:       "numalet-sim",
		RuntimeVersion:    "1.0.0",
		RuntimeApiVersion: "v1",
	}, nil
}

// RunPodSandbox creates a ready sandbox.
func (r *runtimeService) RunPodSandbox(
	_ context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	if m := cfg.GetMetadata(); m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "" {
		return nil, status.Errorf(codes.InvalidArgument,
			"sandbox metadata needs name, namespace and uid: %v", m)
	}
	if err := checkIdentity(cfg.GetLinux().GetSecurityContext(), ""); err != nil {
		return nil, err
	}
	if h := req.GetRuntimeHandler(); h != "" && !slices.Contains(r.cfg.Handlers, h) {
		return nil, status.Errorf(codes.Unknown,
			"failed to get sandbox runtime: no runtime for %q is configured", h)
	}
	if ready := r.ready(); !ready.Network && !hostNetwork(cfg) {
		return nil, status.Errorf(codes.Unknown,
			"failed to setup network for sandbox: cni plugin not initialized: %s", ready.Message)
	}
	sb, err := r.store.runSandbox(cfg, req.GetRuntimeHandler())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// StopPodSandbox kills the containers and frees the address. It succeeds if the sandbox is gone.
func (r *runtimeService) StopPodSandbox(
	_ context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	r.stopSandbox(req.GetPodSandboxId())
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *runtimeService) stopSandbox(id string) {
	for _, c := range r.store.in(id) {
		r.end(c, Exit{Code: exitKilled})
	}
	r.store.stopSandbox(id)
}

// RemovePodSandbox stops and removes the sandbox with its containers.
func (r *runtimeService) RemovePodSandbox(
	_ context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	id := req.GetPodSandboxId()
	if _, err := r.store.sandboxByID(id); err == nil {
		r.stopSandbox(id)
		for _, c := range r.store.in(id) {
			r.store.removeContainer(c)
		}
		r.store.removeSandbox(id)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus includes the containers' statuses.
func (r *runtimeService) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	sb, err := r.store.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return r.store.sandboxStatus(sb), nil
}

// ListPodSandbox filters by id, state and labels.
func (r *runtimeService) ListPodSandbox(
	_ context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: r.store.listSandboxes(req.GetFilter())}, nil
}

// CreateContainer requires a ready sandbox, a pulled image, a configuration that passes
// checkContainer, and the host's devices and mounts that containerd requires.
func (r *runtimeService) CreateContainer(
	_ context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	cfg := req.GetConfig()
	sb, err := r.store.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := checkContainer(cfg); err != nil {
		return nil, err
	}
	img, ok := r.images.find(cfg.GetImage().GetImage())
	if !ok {
		return nil, status.Errorf(codes.NotFound,
			"failed to resolve image %q: not found", cfg.GetImage().GetImage())
	}
	script, err := ScriptFor(sb.config, cfg)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id := newID()
	if err := r.images.checkMounts(cfg); err != nil {
		return nil, err
	}
	if err := checkSpec(id, cfg, r.cfg.CDIDirs); err != nil {
		return nil, err
	}
	c := &container{
		id:        id,
		sandbox:   sb,
		imageRef:  img.id(),
		config:    cfg,
		script:    script,
		resources: mergeResources(nil, cfg.GetLinux().GetResources()),
		done:      make(chan struct{}),
	}
	if err := r.store.createContainer(c); err != nil {
		return nil, err
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer starts a created container, once.
func (r *runtimeService) StartContainer(
	_ context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.script.StartError != "" {
		return nil, status.Errorf(codes.Unknown,
			"failed to create containerd task: failed to create shim task: %s", c.script.StartError)
	}
	if err := checkStart(c.config); err != nil {
		return nil, err
	}
	if err := r.store.startContainer(c); err != nil {
		return nil, err
	}
	logStart(c)
	if c.script.Exits {
		r.store.schedule(c, c.script.After, func() { r.end(c, c.script.Exit) })
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// StopContainer sends SIGTERM, waits up to the timeout (seconds), then kills. It succeeds if the
// container is gone or has exited. If the caller gives up, the container stays terminating.
func (r *runtimeService) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if req.GetTimeout() > 0 {
		r.terminate(c)
		select {
		case <-c.done:
		case <-time.After(time.Duration(req.GetTimeout()) * time.Second):
		case <-ctx.Done():
			if !r.exited(c) {
				return nil, status.FromContextError(ctx.Err()).Err()
			}
		}
	}
	r.end(c, Exit{Code: exitKilled})
	return &runtimeapi.StopContainerResponse{}, nil
}

// terminate acts as SIGTERM does.
func (r *runtimeService) terminate(c *container) {
	if !r.store.terminate(c) || c.script.IgnoreTerm {
		return
	}
	how := Exit{Code: c.script.TermCode}
	if c.script.TermAfter == 0 {
		r.end(c, how)
		return
	}
	r.store.schedule(c, c.script.TermAfter, func() { r.end(c, how) })
}

func (r *runtimeService) exited(c *container) bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// RemoveContainer kills a running container first. It succeeds if the container is gone.
func (r *runtimeService) RemoveContainer(
	_ context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	if c, err := r.store.containerByID(req.GetContainerId()); err == nil {
		r.end(c, Exit{Code: exitKilled})
		r.store.removeContainer(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// ListContainers filters by id, state, sandbox and labels.
func (r *runtimeService) ListContainers(
	_ context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{
		Containers: r.store.listContainers(req.GetFilter()),
	}, nil
}

// ContainerStatus reports the resources as last updated; if verbose, also the configuration.
func (r *runtimeService) ContainerStatus(
	_ context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ContainerStatusResponse{Status: r.store.containerStatus(c)}
	if req.GetVerbose() {
		out.Info, err = inspect(c)
	}
	return out, err
}

// UpdateContainerResources changes the fields that the request sets and keeps the others.
func (r *runtimeService) UpdateContainerResources(
	_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	if err := checkResources(req.GetLinux()); err != nil {
		return nil, err
	}
	if err := r.store.updateResources(req.GetContainerId(), req.GetLinux()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// end is the only way in which a container stops running. Its last output is written before the exit
// can be seen, and it has exited when end returns.
func (s *Server) end(c *container, how Exit) {
	switch mine, running := s.store.claimEnd(c); {
	case mine:
		logExit(c, how)
		s.store.exit(c, how)
	case running:
		<-c.done
	}
}
