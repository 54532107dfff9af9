package cri

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology/podspec"
)

// MemoryQoS configures the memory settings of containers beside their limits, on cgroup v2.
type MemoryQoS struct {
	Unified bool // the host has cgroup v2
	cgroups.MemoryQoS
	// Allocatable is how much of the node's memory all pods together may use, in bytes. It bounds
	// the throttling of containers without a limit.
	Allocatable int64
}

// add adds the container's values. Without the feature gate it sets memory.high to the kernel's
// default explicitly, so that an update takes back what the container was created with.
func (m MemoryQoS) add(
	r *runtimeapi.LinuxContainerResources, pod *v1.Pod, container *v1.Container,
) {
	if !m.Unified {
		return
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	if !m.On {
		r.Unified["memory.high"] = "max"
		return
	}
	request := container.Resources.Requests.Memory().Value()
	kept := m.Protect(podspec.QOSClass(pod), request)
	if kept.Min > 0 || kept.Low == 0 {
		r.Unified["memory.min"] = strconv.FormatInt(kept.Min, 10)
	}
	if kept.Low > 0 || kept.Min == 0 {
		r.Unified["memory.low"] = strconv.FormatInt(kept.Low, 10)
	}
	if high := m.High(request, m.limit(pod, container)); high > 0 {
		r.Unified["memory.high"] = strconv.FormatInt(high, 10)
	}
}

// limit returns the limit that the container's throttling is computed from. It is 0 if the pod has
// a limit and the container none: the pod's cgroup is then throttled instead.
func (m MemoryQoS) limit(pod *v1.Pod, container *v1.Container) int64 {
	if own := container.Resources.Limits.Memory().Value(); own != 0 {
		if own != container.Resources.Requests.Memory().Value() { // else it is not throttled
			brought := podspec.Brought(pod, container.Name)
			own += brought.Memory().Value()
		}
		return own
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return 0
	}
	return m.Allocatable
}
