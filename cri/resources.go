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
// (KEP-2837). Resources from claims are added to the container's own limits (KEP-5517).
func containerDemand(pod *v1.Pod, container *v1.Container) demand {
	d := demand{container.Resources.Requests, container.Resources.Limits}
	var ofPod v1.ResourceList
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		ofPod = pod.Spec.Resources.Limits
	}
	brought := podspec.Brought(pod, container.Name)
	if len(ofPod)+len(brought) == 0 {
		return d
	}
	d.limits = v1.ResourceList{}
	maps.Copy(d.limits, container.Resources.Limits)
	for name, q := range ofPod {
		if own := d.limits[name]; own.IsZero() {
			d.limits[name] = q
		}
	}
	if cpu, limited := d.limits[v1.ResourceCPU]; limited && len(brought) > 0 {
		// A request that is not set follows from the limit without claims.
		d.requests = v1.ResourceList{v1.ResourceCPU: cpu}
		maps.Copy(d.requests, container.Resources.Requests)
	}
	for name, q := range brought {
		own := container.Resources.Limits[name]
		_, huge := quantity.PageSize(name)
		_, limited := d.limits[name]
		// A container without a limit stays without; but it has no huge pages without one.
		if !own.IsZero() || huge && !limited {
			q.Add(own)
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
	o := podspec.Sum()
	o.ExcludeOverhead = true
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
	request := memoryRequest(pod, container)
	if _, kind := podspec.Find(pod, container.Name); kind == podspec.Sidecar &&
		len(pod.Spec.Containers) > 0 {
		// A sidecar lives at least as long as any container that depends on it.
		smallest := memoryRequest(pod, &pod.Spec.Containers[0])
		for i := range pod.Spec.Containers {
			smallest = min(smallest, memoryRequest(pod, &pod.Spec.Containers[i]))
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
// neither containers request themselves nor claims bring (KEP-2837).
func unassignedMemory(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return 0
	}
	assigned := resourcehelper.AggregateContainerRequests(pod, podspec.Sum())
	left := pod.Spec.Resources.Requests.Memory().Value() - assigned.Memory().Value()
	return max(left, 0) / int64(max(len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 1))
}

// memoryRequest returns a container's request in bytes, with its part of what claims bring.
func memoryRequest(pod *v1.Pod, container *v1.Container) int64 {
	brought := podspec.BroughtMemory(pod, container.Name)
	if q, ok := container.Resources.Requests[v1.ResourceMemory]; ok {
		return q.Value() + brought
	}
	return container.Resources.Limits.Memory().Value() + brought
}
