package cri

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology/podspec"
)

// MemoryQoS is what containers are told of their memory beside its limit, on cgroup v2.
type MemoryQoS struct {
	Unified bool // the host has cgroup v2
	cgroups.MemoryQoS
	// Allocatable is the node's memory in bytes that pods may request: what a container without a
	// limit is throttled by.
	Allocatable int64
}

// add adds the container's values. Without the feature gate memory.high is the kernel's default,
// said to the runtime: an update takes back what the container was created with.
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

// limit is what the container is throttled by, 0 if it is its pod's cgroup that is: the pod has a
// limit and the container none.
func (m MemoryQoS) limit(pod *v1.Pod, container *v1.Container) int64 {
	if own := container.Resources.Limits.Memory().Value(); own != 0 {
		return own
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return 0
	}
	return m.Allocatable
}
