package podspec

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/internal/podtest"
)

// The claim satisfies only what its mappings say of that very container.
func TestByClaim(t *testing.T) {
	pod := podtest.New("", podtest.Containers("a gpu=1 nic=1", "b gpu=1"))
	if got := ByClaim(pod, "a"); len(got) != 0 {
		t.Errorf("without a claim: %v", got)
	}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "x", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "a", ResourceName: "example.com/gpu", RequestName: "r0"},
			{ContainerName: "a", ResourceName: "example.com/gpu", RequestName: "r1"},
		}}
	for container, want := range map[string]string{"a": "[example.com/gpu]", "b": "[]", "c": "[]"} {
		if got := fmt.Sprint(sets.List(ByClaim(pod, container))); got != want {
			t.Errorf("%s gets %s by claim, want %s", container, got, want)
		}
	}
}
