package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Awaited is what the pod needs to run at all that it cannot have yet; "": nothing.
func Awaited(pod *v1.Pod) string {
	if claims := pod.Spec.ResourceClaims; len(claims) > 0 {
		return fmt.Sprintf("spec.resourceClaims: resource claim %q", claims[0].Name)
	}
	return ""
}
