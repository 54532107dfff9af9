package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Awaited returns what the pod needs but cannot get in this version; "": nothing.
func Awaited(pod *v1.Pod) string {
	if claims := pod.Spec.ResourceClaims; len(claims) > 0 {
		return fmt.Sprintf("spec.resourceClaims: resource claim %q", claims[0].Name)
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && len(s.RequestMappings) > 0 {
		first := s.RequestMappings[0] // no device plugin may be asked for these
		return fmt.Sprintf("status.extendedResourceClaimStatus: resource claim %q for %s of container %s",
			s.ResourceClaimName, first.ResourceName, first.ContainerName)
	}
	return ""
}
