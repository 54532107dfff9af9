package cri

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/internal/quantity"
	"github.com/numalet/numalet/topology/podspec"
)

// ResourceOptions holds what the node adds to a container's resources.
type ResourceOptions struct {
	// NoQuota is set if cpuCFSQuota is false: CPU limits are not enforced.
	NoQuota bool
	// Period is cpuCFSQuotaPeriod; 0 means cgroups.DefaultPeriod.
	Period time.Duration
	// HugePageSizes holds the host's page sizes in bytes; each gets a limit.
	HugePageSizes []int64
	// NodeMemory is the node's memory capacity in bytes. OOM scores are relative to it.
	NodeMemory int64
	// OOMGroup makes the kernel kill all processes of a container together. cgroup v2 only.
	OOMGroup bool
	Swap     Swap
	Memory   MemoryQoS
}

// Placement says where a container may run.
type Placement struct {
	// CPUs and Mems are cpuset.cpus and cpuset.mems in kernel list syntax; "" sets nothing.
	CPUs, Mems string
	// Exclusive is set if the container has its CPUs alone, as many as it asked for. No CPU quota may
	// throttle it.
	Exclusive bool
}

// The bounds of oom_score_adj by QoS class. Within Burstable it depends on the share of memory
// requested (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
const (
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	oomBurstableMin = oomBestEffort + oomGuaranteed
	oomBurstableMax = oomBestEffort - 1
)

// systemNodeCritical is the priority class of pods that the node needs.
const systemNodeCritical = "system-node-critical"

// ContainerResources returns the container's own limits and its placement.
func ContainerResources(
	pod *v1.Pod, container *v1.Container, o ResourceOptions, place Placement,
) *runtimeapi.LinuxContainerResources {
	need := containerDemand(pod, container)
	r := need.linux(o)
	for _, size := range slices.Sorted(slices.Values(o.HugePageSizes)) {
		r.HugepageLimits = append(r.HugepageLimits,
			&runtimeapi.HugepageLimit{PageSize: cgroups.PageSizeName(size),
				Limit: need.hugePages(size)})
	}
	if place.Exclusive && !o.NoQuota {
		r.CpuQuota = cgroups.Unlimited
	}
	r.OomScoreAdj = OOMScoreAdj(pod, container, o.NodeMemory)
	r.CpusetCpus, r.CpusetMems = place.CPUs, place.Mems
	if o.OOMGroup {
		// Documentation/admin-guide/cgroup-v2.rst, memory.oom.group.
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	o.Memory.add(r, pod, container)
	o.Swap.limit(r, o.NodeMemory, swapRequest(pod, container))
	return r
}

// containerDemand returns what a container asks for. Containers without limits have the pod's
// (KEP-2837).
func containerDemand(pod *v1.Pod, container *v1.Container) demand {
	d := demand{container.Resources.Requests, container.Resources.Limits}
	if !resourcehelper.IsPodLevelLimitsSet(pod) {
		return d
	}
	d.limits = maps.Clone(d.limits)
	if d.limits == nil {
		d.limits = v1.ResourceList{}
	}
	for name, q := range pod.Spec.Resources.Limits {
		if own := d.limits[name]; own.IsZero() {
			d.limits[name] = q
		}
	}
	return d
}

// demand holds what a container, a pod or a pod's overhead asks for.
type demand struct{ requests, limits v1.ResourceList }

func (d demand) linux(o ResourceOptions) *runtimeapi.LinuxContainerResources {
	cpu, requested := d.requests[v1.ResourceCPU]
	if !requested {
		cpu = d.limits[v1.ResourceCPU]
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(cgroups.Shares(cpu.MilliValue())),
		MemoryLimitInBytes: d.limits.Memory().Value(),
	}
	if !o.NoQuota {
		period := cmp.Or(o.Period, cgroups.DefaultPeriod)
		r.CpuPeriod = period.Microseconds()
		r.CpuQuota = cgroups.Quota(d.limits.Cpu().MilliValue(), period)
	}
	return r
}

// hugePages returns the limit of pages of that size in bytes; 0 if there is none.
func (d demand) hugePages(size int64) uint64 {
	for name, limit := range d.limits {
		if pages, ok := quantity.PageSize(name); ok && pages == size {
			return uint64(max(limit.Value(), 0))
		}
	}
	return 0
}

// podDemand returns what all containers together ask for, without the sandbox's overhead.
func podDemand(pod *v1.Pod) demand {
	o := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return demand{resourcehelper.PodRequests(pod, o), resourcehelper.PodLimits(pod, o)}
}

// OOMScoreAdj returns /proc/PID/oom_score_adj for the container on a node with nodeMemory bytes.
// The more of the node's memory a container requests, the later it is killed.
func OOMScoreAdj(pod *v1.Pod, container *v1.Container, nodeMemory int64) int64 {
	if pod.Spec.PriorityClassName == systemNodeCritical {
		return oomGuaranteed
	}
	switch podspec.QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	request := memoryRequest(container)
	if _, kind := podspec.Find(pod, container.Name); kind == podspec.Sidecar &&
		len(pod.Spec.Containers) > 0 {
		// A sidecar lives at least as long as any container that depends on it.
		smallest := memoryRequest(&pod.Spec.Containers[0])
		for i := range pod.Spec.Containers {
			smallest = min(smallest, memoryRequest(&pod.Spec.Containers[i]))
		}
		request = max(request, smallest)
	}
	request += unassignedMemory(pod)
	if nodeMemory <= 0 {
		return oomBurstableMax
	}
	return min(max(oomBestEffort-oomBestEffort*request/nodeMemory, oomBurstableMin),
		oomBurstableMax)
}

// unassignedMemory returns a container's equal part, in bytes, of the pod-level memory request that
// no container requests itself (KEP-2837).
func unassignedMemory(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return 0
	}
	left := pod.Spec.Resources.Requests.Memory().Value()
	parts := int64(0)
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Init {
			left -= memoryRequest(c)
			parts++
		}
	}
	return max(left, 0) / max(parts, 1)
}

func memoryRequest(container *v1.Container) int64 {
	if q, ok := container.Resources.Requests[v1.ResourceMemory]; ok {
		return q.Value()
	}
	return container.Resources.Limits.Memory().Value()
}
