package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

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
