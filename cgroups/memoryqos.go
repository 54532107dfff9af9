package cgroups

import (
	"math"
	"os"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/topology/podspec"
)

// MemoryQoS configures what cgroup v2 gets for pods' memory besides the limit (KEP-2570). The zero
// value is for a node whose feature gate MemoryQoS is off.
type MemoryQoS struct {
	On bool
	// Reserve protects requested memory from reclaim: memoryReservationPolicy is TieredReservation.
	// Throttle is memoryThrottlingFactor, 0 if it is not set.
	Reserve  bool
	Throttle float64
}

// Protection is a cgroup's protected memory in bytes: memory.min always, memory.low as long as
// unprotected memory can be reclaimed.
type Protection struct{ Min, Low int64 }

// Protect returns the protected part of the request of a pod of that class, or of its container.
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

// High returns memory.high in bytes, a multiple of the page size: above it the kernel throttles
// processes and reclaims. It is 0 without throttling, as when the request equals the limit.
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

// AddPod adds the values for the pod's cgroup. Only a pod with pod-level limits is throttled here,
// others by container.
func (m MemoryQoS) AddPod(r *Resources, pod *v1.Pod) {
	o := podspec.Sum()
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
