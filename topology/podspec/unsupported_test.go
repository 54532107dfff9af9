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
	mapped := &v1.Pod{Status: v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "p-extended-resources-x", RequestMappings: []v1.ContainerExtendedResourceRequest{{
			ContainerName: "main", ResourceName: "nvidia.com/gpu", RequestName: "container-0-request-0"}},
	}}}
	if got, want := Awaited(mapped), "status.extendedResourceClaimStatus: resource claim "+
		`"p-extended-resources-x" for nvidia.com/gpu of container main`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
