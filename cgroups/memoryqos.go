package cgroups

import (
	"math"
	"os"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/topology/podspec"
)

// MemoryQoS is what cgroup v2 is told of pods' memory beside its limit (KEP-2570). The zero value
// is that of a node whose feature gate MemoryQoS is off.
type MemoryQoS struct {
	On bool
	// Reserve keeps what was requested from being reclaimed: memoryReservationPolicy is
	// TieredReservation. Throttle is memoryThrottlingFactor, 0 where it is not set.
	Reserve  bool
	Throttle float64
}

// Protection is memory in bytes that a cgroup keeps: memory.min under all circumstances, memory.low
// as long as there is memory of others to reclaim.
type Protection struct{ Min, Low int64 }

// Protect is what a pod of that class, or a container of it, keeps of its request.
func (m MemoryQoS) Protect(class v1.PodQOSClass, request int64) Protection {
	switch {
	case !m.On || !m.Reserve:
		return Protection{}
	case class == v1.PodQOSGuaranteed:
		return Protection{Min: request}
	default:
		return Protection{Low: request}
	}
}

// High is memory.high in bytes, so many whole pages: beyond it the kernel slows processes down and
// reclaims. It is 0 where nothing is throttled, as with a request that is the limit.
func (m MemoryQoS) High(request, limit int64) int64 {
	if !m.On || m.Throttle == 0 || limit == 0 || request == limit {
		return 0
	}
	page := float64(os.Getpagesize())
	between := float64(limit-request) * m.Throttle
	if high := int64(math.Floor((float64(request)+between)/page) * page); high > request {
		return high
	}
	return 0
}

// addPod adds what the cgroup of the pod is told. Only a pod with limits of its own is throttled
// here, others by container.
func (m MemoryQoS) addPod(r *Resources, pod *v1.Pod) {
	o := resourcehelper.PodResourcesOptions{}
	requests := resourcehelper.PodRequests(pod, o)
	protection := m.Protect(podspec.QOSClass(pod), requests.Memory().Value())
	r.Protection = &protection
	r.High = Unlimited
	if resourcehelper.IsPodLevelResourcesSet(pod) && limited(pod, v1.ResourceMemory) {
		limits := resourcehelper.PodLimits(pod, o)
		if high := m.High(requests.Memory().Value(), limits.Memory().Value()); high > 0 {
			r.High = high
		}
	}
}
