package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Stats holds the runtime's statistics: one entry for each running sandbox or, if the runtime has
// no statistics of pods, for each container.
type Stats struct {
	Pods []*runtimeapi.PodSandboxStats
	// Containers is set if the runtime has no statistics of pods.
	Containers []*runtimeapi.ContainerStats
}

// Stats asks the runtime, with one call if it has statistics of pods. The answer includes sandboxes
// of other agents.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	ctx = quiet(ctx)
	pods, err := c.runtime.ListPodSandboxStats(ctx, nil)
	if err == nil {
		return Stats{Pods: pods}, nil
	}
	if status.Code(err) != codes.Unimplemented {
		return Stats{}, fmt.Errorf("list statistics of pods: %w", err)
	}
	containers, err := c.runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return Stats{}, fmt.Errorf("list statistics of containers: %w", err)
	}
	return Stats{Containers: containers}, nil
}

// Metrics holds the runtime's own metrics of running sandboxes, and the descriptors of these
// metrics.
type Metrics struct {
	Descriptors []*runtimeapi.MetricDescriptor
	Sandboxes   []*runtimeapi.PodSandboxMetrics
}

// Metrics asks the runtime for its metrics. The answer includes sandboxes of other agents. It is
// empty if the runtime has none.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	ctx = quiet(ctx)
	var m Metrics
	var err error
	if m.Descriptors, err = c.runtime.ListMetricDescriptors(ctx); err == nil {
		m.Sandboxes, err = c.runtime.ListPodSandboxMetrics(ctx)
	}
	if status.Code(err) == codes.Unimplemented {
		return Metrics{}, nil
	}
	if err != nil {
		return Metrics{}, fmt.Errorf("list metrics of pods: %w", err)
	}
	return m, nil
}

// ImageFilesystems returns the filesystems of images and of writable container layers, with their
// usage. Both are the same if the runtime reports only the first.
func (c *Client) ImageFilesystems(ctx context.Context) (
	images, containers *runtimeapi.FilesystemUsage, err error) {
	resp, err := c.images.ImageFsInfo(quiet(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the filesystem of images: %w", err)
	}
	first := func(all []*runtimeapi.FilesystemUsage) *runtimeapi.FilesystemUsage {
		found, _ := find(all, func(f *runtimeapi.FilesystemUsage) bool {
			return f.GetFsId().GetMountpoint() != ""
		})
		return found
	}
	images = first(resp.GetImageFilesystems())
	if containers = first(resp.GetContainerFilesystems()); containers == nil {
		containers = images
	}
	return images, containers, nil
}
