package hollow

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Resize implements agent.HollowRuntime. A container that its resize policy starts anew gets its resources
// when its worker does that.
func (r *runtime) Resize(pod *v1.Pod, settled func()) {
	lags := false
	r.change(pod.UID, func(p *hollowPod) {
		p.seen.Containers = slices.Clone(p.seen.Containers)
		for i := range p.seen.Containers {
			c := &p.seen.Containers[i]
			if spec, _ := podspec.Find(pod, c.Name); spec != nil && !restarts(spec, *c) {
				c.Applied = applied(pod, spec)
			}
		}
		p.settled = nil
		if lags = p.lags(pod); lags {
			p.settled = settled
		}
	})
	if !lags {
		settled()
	}
}

// lags reports whether a container that runs is yet to be started anew to have its resources.
func (p *hollowPod) lags(pod *v1.Pod) bool {
	return slices.ContainsFunc(p.seen.Containers, func(c cri.Container) bool {
		spec, _ := podspec.Find(pod, c.Name)
		return spec != nil && restarts(spec, c)
	})
}

// restarts reports whether a container runs and has to be started anew to have these resources.
func restarts(spec *v1.Container, c cri.Container) bool {
	made := resize.Made(c)
	return c.State == cri.ContainerRunning && made != nil && resize.Restarts(spec, *made)
}

// applied returns what a container runtime would report of a container's resources.
func applied(pod *v1.Pod, c *v1.Container) cri.Applied {
	r := cri.ContainerResources(pod, c, cri.ResourceOptions{}, cri.Placement{})
	return cri.Applied{
		Shares: r.CpuShares, Quota: r.CpuQuota, Period: r.CpuPeriod, Memory: r.MemoryLimitInBytes,
	}
}

// annotations returns what a container or a sandbox says of the resources that it was made with.
func annotations(resources string) map[string]string {
	if resources == "" {
		return nil
	}
	return map[string]string{resize.Annotation: resources}
}
