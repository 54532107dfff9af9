package cri

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/topology/oneline"
)

// shortRuntime is a runtime service of which what is wrong comes as one line: of the calls whose
// errors are shown. Runtimes hand on what runc and registries wrote.
type shortRuntime struct{ internalapi.RuntimeService }

// shortImages is the same of an image service.
type shortImages struct {
	internalapi.ImageManagerService
}

// short is an error in one line. The whole is logged at V(4).
func short(ctx context.Context, err error) error {
	return oneline.Logged(klog.FromContext(ctx), "the container runtime", err)
}

func (r shortRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig,
	handler string) (string, error) {
	out, err := r.RuntimeService.RunPodSandbox(ctx, config, handler)
	return out, short(ctx, err)
}

func (r shortRuntime) StopPodSandbox(ctx context.Context, id string) error {
	return short(ctx, r.RuntimeService.StopPodSandbox(ctx, id))
}

func (r shortRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	return short(ctx, r.RuntimeService.RemovePodSandbox(ctx, id))
}

func (r shortRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (
	*runtimeapi.PodSandboxStatusResponse, error) {
	out, err := r.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	return out, short(ctx, err)
}

func (r shortRuntime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (
	[]*runtimeapi.PodSandbox, error) {
	out, err := r.RuntimeService.ListPodSandbox(ctx, filter)
	return out, short(ctx, err)
}

func (r shortRuntime) CreateContainer(ctx context.Context, sandbox string,
	config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (
	string, error) {
	out, err := r.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
	return out, short(ctx, err)
}

func (r shortRuntime) StartContainer(ctx context.Context, id string) error {
	return short(ctx, r.RuntimeService.StartContainer(ctx, id))
}

func (r shortRuntime) StopContainer(ctx context.Context, id string, grace int64) error {
	return short(ctx, r.RuntimeService.StopContainer(ctx, id, grace))
}

func (r shortRuntime) RemoveContainer(ctx context.Context, id string) error {
	return short(ctx, r.RuntimeService.RemoveContainer(ctx, id))
}

func (r shortRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (
	*runtimeapi.ContainerStatusResponse, error) {
	out, err := r.RuntimeService.ContainerStatus(ctx, id, verbose)
	return out, short(ctx, err)
}

func (r shortRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) (
	[]*runtimeapi.Container, error) {
	out, err := r.RuntimeService.ListContainers(ctx, filter)
	return out, short(ctx, err)
}

func (r shortRuntime) UpdateContainerResources(ctx context.Context, id string,
	resources *runtimeapi.ContainerResources) error {
	return short(ctx, r.RuntimeService.UpdateContainerResources(ctx, id, resources))
}

func (r shortRuntime) Version(ctx context.Context, version string) (
	*runtimeapi.VersionResponse, error) {
	out, err := r.RuntimeService.Version(ctx, version)
	return out, short(ctx, err)
}

func (r shortRuntime) Status(ctx context.Context, verbose bool) (
	*runtimeapi.StatusResponse, error) {
	out, err := r.RuntimeService.Status(ctx, verbose)
	return out, short(ctx, err)
}

func (r shortRuntime) RuntimeConfig(ctx context.Context) (
	*runtimeapi.RuntimeConfigResponse, error) {
	out, err := r.RuntimeService.RuntimeConfig(ctx)
	return out, short(ctx, err)
}

func (r shortImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (
	*runtimeapi.ImageStatusResponse, error) {
	out, err := r.ImageManagerService.ImageStatus(ctx, image, verbose)
	return out, short(ctx, err)
}

func (r shortImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec,
	auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	out, err := r.ImageManagerService.PullImage(ctx, image, auth, sandbox)
	return out, short(ctx, err)
}
