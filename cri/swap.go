package cri

import (
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Swap describes how containers may use the node's swap space (KEP-2400).
type Swap struct {
	// Controlled is set if the kernel limits swap by cgroup; otherwise no limit is set. Unified is set
	// if it does so as cgroup v2.
	Controlled, Unified bool
	// Limited is set for swapBehavior LimitedSwap; otherwise no container swaps.
	Limited bool
	// Bytes is the size of the node's swap space.
	Bytes int64
}

// limit adds the container's limit. A container with a request, in bytes, gets the same share of
// the node's swap as it requests of the node's memory. A request of 0 means no swap.
func (s Swap) limit(r *runtimeapi.LinuxContainerResources, nodeMemory, request int64) {
	switch {
	case !s.Controlled:
	case !s.Unified: // the limit is of memory and swap together
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	default:
		var swap int64
		if s.Limited && nodeMemory > 0 {
			share := float64(request) / float64(nodeMemory)
			swap = int64(math.Floor(share * float64(s.Bytes)))
		}
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified["memory.swap.max"] = strconv.FormatInt(swap, 10)
	}
}

// Allows reports whether a container may swap.
func (s Swap) Allows(pod *v1.Pod, container *v1.Container) bool {
	return s.Limited && s.Controlled && s.Unified && swapRequest(pod, container) > 0
}

// swapRequest returns the memory request of a container that may swap, else 0. A container may not
// swap if it has no request, if its request equals its limit, or if its pod is critical or not
// Burstable.
func swapRequest(pod *v1.Pod, container *v1.Container) int64 {
	request := container.Resources.Requests.Memory()
	limit := container.Resources.Limits.Memory()
	if podspec.QOSClass(pod) != v1.PodQOSBurstable || podspec.IsCritical(pod) ||
		request.Cmp(*limit) == 0 {
		return 0
	}
	return request.Value()
}
