package conformance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// statistics cover a sandbox and its running containers. The runtime's metrics name sandboxes and
// containers by id, and each metric has a descriptor.
func statistics(t *testing.T, s *suite) {
	p := s.sandbox(t)
	id := p.start("c", s.opts.Forever)
	for what, lacks := range map[string]func(t *testing.T, sandbox, container string) error{
		"statistics": s.counts, "metrics": s.measures,
	} {
		deadline := time.Now().Add(s.opts.Wait) // while other pods go a runtime may fail to list them
		for err := lacks(t, p.id, id); err != nil; err = lacks(t, p.id, id) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	ctx, cancel := s.context(t)
	defer cancel()
	images, containers, err := s.client.ImageFilesystems(ctx)
	if err != nil || images.GetFsId().GetMountpoint() == "" ||
		containers.GetFsId().GetMountpoint() == "" {
		t.Errorf("filesystems are %v and %v, %v", images, containers, err)
	}
}

// measures returns what a container's metrics lack.
func (s *suite) measures(t *testing.T, sandbox, container string) error {
	ctx, cancel := s.context(t)
	defer cancel()
	m, err := s.client.Metrics(ctx)
	if err != nil || len(m.Descriptors) == 0 {
		return fmt.Errorf("metrics are %+v, %w", m, err)
	}
	i := slices.IndexFunc(m.Sandboxes, func(one *runtimeapi.PodSandboxMetrics) bool {
		return one.GetPodSandboxId() == sandbox
	})
	if i < 0 || len(m.Sandboxes[i].GetContainerMetrics()) != 1 ||
		m.Sandboxes[i].GetContainerMetrics()[0].GetContainerId() != container {
		return fmt.Errorf("the container has no metrics: %+v", m.Sandboxes)
	}
	for _, one := range m.Sandboxes[i].GetContainerMetrics()[0].GetMetrics() {
		if !slices.ContainsFunc(m.Descriptors, func(d *runtimeapi.MetricDescriptor) bool {
			return d.GetName() == one.GetName()
		}) {
			t.Errorf("metric %s is not described", one.GetName())
		}
	}
	return nil
}

// counts returns what a container's statistics lack.
func (s *suite) counts(t *testing.T, sandbox, container string) error {
	ctx, cancel := s.context(t)
	defer cancel()
	all, err := s.client.Stats(ctx)
	if err != nil {
		return err
	}
	for _, one := range all.Pods {
		if one.GetAttributes().GetId() != sandbox {
			continue
		}
		linux := one.GetLinux()
		i := slices.IndexFunc(linux.GetContainers(), func(c *runtimeapi.ContainerStats) bool {
			return c.GetAttributes().GetId() == container
		})
		if i < 0 {
			return fmt.Errorf("sandbox has %d containers, not this one", len(linux.GetContainers()))
		}
		c := linux.GetContainers()[i]
		if c.GetCpu().GetUsageCoreNanoSeconds() == nil ||
			c.GetMemory().GetWorkingSetBytes() == nil || linux.GetCpu().GetTimestamp() == 0 {
			return fmt.Errorf("statistics lack CPU or memory: %v, pod %v", c, linux.GetCpu())
		}
		return nil
	}
	return fmt.Errorf("there are statistics of %d pods, not of this one", len(all.Pods))
}
