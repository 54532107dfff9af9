package cri

import (
	"context"
	"time"

	"k8s.io/component-base/metrics"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/internal/oneline"
)

// measures holds the kubelet's metrics of calls to the runtime.
type measures struct {
	metric.Set
	operations, failures *metrics.CounterVec
	took                 *metrics.HistogramVec
	sandboxFailures      *metrics.CounterVec
	sandboxTook          *metrics.HistogramVec
	losing               *metrics.GaugeVec
}

// losesAt is the release of Kubernetes that requires a runtime with RuntimeConfig (KEP-4033).
const losesAt = "1.38.0"

func newMeasures() *measures {
	const operation, handler = "operation_type", "runtime_handler"
	m := &measures{}
	m.operations = m.Counters("kubelet_runtime_operations_total",
		"Calls to the container runtime, by operation.", operation)
	m.took = m.Histograms("kubelet_runtime_operations_duration_seconds",
		"Duration in seconds of calls to the container runtime, by operation.",
		metrics.ExponentialBuckets(.005, 2.5, 14), operation)
	m.failures = m.Counters("kubelet_runtime_operations_errors_total",
		"Calls to the container runtime that failed, by operation.", operation)
	m.sandboxTook = m.Histograms("kubelet_run_podsandbox_duration_seconds",
		"Duration in seconds of making sandboxes, by runtime handler; empty is the default one.",
		metrics.DefBuckets, handler)
	m.sandboxFailures = m.Counters("kubelet_run_podsandbox_errors_total",
		"Sandboxes that could not be made, by runtime handler; empty is the default one.", handler)
	m.losing = m.Gauges("kubelet_cri_losing_support",
		"The release of Kubernetes that needs a newer container runtime than this one.", "version")
	return m
}

// called counts a finished call; callers defer it with the time of the call. Runtimes pass on the
// output of runc and registries: called shortens the error to one line and logs the whole at V(4).
func (m *measures) called(ctx context.Context, operation string, at time.Time, err *error) {
	m.operations.WithLabelValues(operation).Inc()
	m.took.WithLabelValues(operation).Observe(time.Since(at).Seconds())
	if *err != nil {
		m.failures.WithLabelValues(operation).Inc()
		*err = oneline.Logged(klog.FromContext(ctx), "the container runtime", *err)
	}
}

// measuredRuntime counts the agent's calls, under the kubelet's names.
type measuredRuntime struct {
	internalapi.RuntimeService
	m *measures
}

func (r measuredRuntime) Version(ctx context.Context, api string) (
	_ *runtimeapi.VersionResponse, err error) {
	defer r.m.called(ctx, "version", time.Now(), &err)
	return r.RuntimeService.Version(ctx, api)
}

func (r measuredRuntime) Status(ctx context.Context, verbose bool) (
	_ *runtimeapi.StatusResponse, err error) {
	defer r.m.called(ctx, "status", time.Now(), &err)
	return r.RuntimeService.Status(ctx, verbose)
}

func (r measuredRuntime) RuntimeConfig(ctx context.Context) (
	_ *runtimeapi.RuntimeConfigResponse, err error) {
	defer r.m.called(ctx, "runtime_config", time.Now(), &err)
	return r.RuntimeService.RuntimeConfig(ctx)
}

func (r measuredRuntime) GetContainerEvents(ctx context.Context,
	to chan *runtimeapi.ContainerEventResponse,
	connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) (err error) {
	defer r.m.called(ctx, "get_container_events", time.Now(), &err)
	return r.RuntimeService.GetContainerEvents(ctx, to, connected)
}

func (r measuredRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig,
	handler string) (_ string, err error) {
	at := time.Now()
	defer r.m.called(ctx, "run_podsandbox", at, &err)
	defer func() {
		r.m.sandboxTook.WithLabelValues(handler).Observe(time.Since(at).Seconds())
		if err != nil {
			r.m.sandboxFailures.WithLabelValues(handler).Inc()
		}
	}()
	ctx, cancel := outlasting(ctx, toStart)
	defer cancel()
	return r.RuntimeService.RunPodSandbox(ctx, config, handler)
}

func (r measuredRuntime) StopPodSandbox(ctx context.Context, id string) (err error) {
	defer r.m.called(ctx, "stop_podsandbox", time.Now(), &err)
	return r.RuntimeService.StopPodSandbox(ctx, id)
}

func (r measuredRuntime) RemovePodSandbox(ctx context.Context, id string) (err error) {
	defer r.m.called(ctx, "remove_podsandbox", time.Now(), &err)
	return r.RuntimeService.RemovePodSandbox(ctx, id)
}

func (r measuredRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (
	_ *runtimeapi.PodSandboxStatusResponse, err error) {
	defer r.m.called(ctx, "podsandbox_status", time.Now(), &err)
	return r.RuntimeService.PodSandboxStatus(ctx, id, verbose)
}

func (r measuredRuntime) ListPodSandbox(ctx context.Context, of *runtimeapi.PodSandboxFilter) (
	_ []*runtimeapi.PodSandbox, err error) {
	defer r.m.called(ctx, "list_podsandbox", time.Now(), &err)
	return r.RuntimeService.ListPodSandbox(ctx, of)
}

func (r measuredRuntime) CreateContainer(ctx context.Context, sandbox string,
	config *runtimeapi.ContainerConfig, in *runtimeapi.PodSandboxConfig) (_ string, err error) {
	defer r.m.called(ctx, "create_container", time.Now(), &err)
	return r.RuntimeService.CreateContainer(ctx, sandbox, config, in)
}

func (r measuredRuntime) StartContainer(ctx context.Context, id string) (err error) {
	defer r.m.called(ctx, "start_container", time.Now(), &err)
	ctx, cancel := outlasting(ctx, toStart)
	defer cancel()
	return r.RuntimeService.StartContainer(ctx, id)
}

func (r measuredRuntime) StopContainer(ctx context.Context, id string, grace int64) (err error) {
	defer r.m.called(ctx, "stop_container", time.Now(), &err)
	return r.RuntimeService.StopContainer(ctx, id, grace)
}

func (r measuredRuntime) RemoveContainer(ctx context.Context, id string) (err error) {
	defer r.m.called(ctx, "remove_container", time.Now(), &err)
	return r.RuntimeService.RemoveContainer(ctx, id)
}

func (r measuredRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (
	_ *runtimeapi.ContainerStatusResponse, err error) {
	defer r.m.called(ctx, "container_status", time.Now(), &err)
	return r.RuntimeService.ContainerStatus(ctx, id, verbose)
}

func (r measuredRuntime) ListContainers(ctx context.Context, of *runtimeapi.ContainerFilter) (
	_ []*runtimeapi.Container, err error) {
	defer r.m.called(ctx, "list_containers", time.Now(), &err)
	return r.RuntimeService.ListContainers(ctx, of)
}

func (r measuredRuntime) UpdateContainerResources(ctx context.Context, id string,
	to *runtimeapi.ContainerResources) (err error) {
	defer r.m.called(ctx, "update_container", time.Now(), &err)
	return r.RuntimeService.UpdateContainerResources(ctx, id, to)
}

func (r measuredRuntime) ListPodSandboxStats(ctx context.Context,
	of *runtimeapi.PodSandboxStatsFilter) (_ []*runtimeapi.PodSandboxStats, err error) {
	defer r.m.called(ctx, "list_podsandbox_stats", time.Now(), &err)
	return r.RuntimeService.ListPodSandboxStats(ctx, of)
}

func (r measuredRuntime) ListContainerStats(ctx context.Context,
	of *runtimeapi.ContainerStatsFilter) (_ []*runtimeapi.ContainerStats, err error) {
	defer r.m.called(ctx, "list_container_stats", time.Now(), &err)
	return r.RuntimeService.ListContainerStats(ctx, of)
}

func (r measuredRuntime) ListMetricDescriptors(ctx context.Context) (
	_ []*runtimeapi.MetricDescriptor, err error) {
	defer r.m.called(ctx, "list_metric_descriptors", time.Now(), &err)
	return r.RuntimeService.ListMetricDescriptors(ctx)
}

func (r measuredRuntime) ListPodSandboxMetrics(ctx context.Context) (
	_ []*runtimeapi.PodSandboxMetrics, err error) {
	defer r.m.called(ctx, "list_podsandbox_metrics", time.Now(), &err)
	return r.RuntimeService.ListPodSandboxMetrics(ctx)
}

// measuredImages does the same for the image service.
type measuredImages struct {
	internalapi.ImageManagerService
	m *measures
}

func (i measuredImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec,
	verbose bool) (_ *runtimeapi.ImageStatusResponse, err error) {
	defer i.m.called(ctx, "image_status", time.Now(), &err)
	return i.ImageManagerService.ImageStatus(ctx, image, verbose)
}

func (i measuredImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec,
	auth *runtimeapi.AuthConfig, in *runtimeapi.PodSandboxConfig) (_ string, err error) {
	defer i.m.called(ctx, "pull_image", time.Now(), &err)
	return i.ImageManagerService.PullImage(ctx, image, auth, in)
}

func (i measuredImages) ImageFsInfo(ctx context.Context) (
	_ *runtimeapi.ImageFsInfoResponse, err error) {
	defer i.m.called(ctx, "image_fs_info", time.Now(), &err)
	return i.ImageManagerService.ImageFsInfo(ctx)
}
