package cri

import (
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Swap is what containers may use of the node's swap space (KEP-2400).
type Swap struct {
	// Controlled: the kernel limits swap by cgroup; without that nothing can be said. Unified: it
	// does so as cgroup v2.
	Controlled, Unified bool
	// Limited is swapBehavior LimitedSwap; else no container swaps.
	Limited bool
	// Bytes is how much swap space the node has.
	Bytes int64
}

// limit adds the container's limit. A share of the node's swap space, as great as the one of the
// node's memory that it requests, is for those that may swap: request, in bytes, is not 0.
func (s Swap) limit(r *runtimeapi.LinuxContainerResources, nodeMemory, request int64) {
	switch {
	case !s.Controlled:
	case !s.Unified: // memory and swap together
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

// swapRequest is the memory request of a container that may swap, 0 of one that may not: it has no
// request or one that is its limit, or its pod is of another class than Burstable, or critical.
func swapRequest(pod *v1.Pod, container *v1.Container) int64 {
	request := container.Resources.Requests.Memory()
	limit := container.Resources.Limits.Memory()
	if podspec.QOSClass(pod) != v1.PodQOSBurstable || podspec.IsCritical(pod) ||
		request.Cmp(*limit) == 0 {
		return 0
	}
	return request.Value()
}
