package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Sum says how the requests and limits of a pod are summed up: with the CPUs, the memory and the
// huge pages that its resource claims bring (KEP-5517). The scheduler has written these into the
// pod's status; agent/pods/source removes them where the gate DRANodeAllocatableResources is off.
func Sum() resourcehelper.PodResourcesOptions {
	return resourcehelper.PodResourcesOptions{UseDRANodeAllocatableResourceClaimStatus: true}
}

// Brought returns what resource claims bring to the limits of the container of that name.
func Brought(pod *v1.Pod, container string) v1.ResourceList {
	if len(pod.Status.NodeAllocatableResourceClaimStatuses) == 0 {
		return nil
	}
	return resourcehelper.GetContainerDRAAllocations(pod, container)
}

// BroughtMemory returns the container's part of the memory that resource claims bring, in bytes:
// containers that use a claim share what it brings to the pod, each alike.
func BroughtMemory(pod *v1.Pod, container string) (bytes int64) {
	for _, s := range pod.Status.NodeAllocatableResourceClaimStatuses {
		if !slices.Contains(s.Containers, container) {
			continue
		}
		users := int64(len(s.Containers))
		for _, m := range s.Mapping {
			if m.Name == v1.ResourceMemory && m.Quantity != nil {
				bytes += m.Quantity.Value() / users
			}
		}
		for _, o := range s.Overhead {
			if o.Name != v1.ResourceMemory {
				continue
			}
			if o.PerPod != nil {
				bytes += o.PerPod.Value() / users
			}
			if o.PerContainer != nil {
				bytes += o.PerContainer.Value()
			}
		}
	}
	return bytes
}

// ByClaim returns the extended resources that the container of that name gets by the pod's claim
// for extended resources: no device plugin is asked for them.
func ByClaim(pod *v1.Pod, container string) sets.Set[string] {
	s := pod.Status.ExtendedResourceClaimStatus
	if s == nil {
		return nil
	}
	out := sets.New[string]()
	for _, m := range s.RequestMappings {
		if m.ContainerName == container {
			out.Insert(m.ResourceName)
		}
	}
	return out
}
