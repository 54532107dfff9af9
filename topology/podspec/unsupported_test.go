package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAwaited(t *testing.T) {
	for want, spec := range map[string]v1.PodSpec{
		"": {RuntimeClassName: ptr.To("")},
		`spec.resourceClaims: resource claim "gpu"`: {
			ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}}},
	} {
		if got := Awaited(&v1.Pod{Spec: spec}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
