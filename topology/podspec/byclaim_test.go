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

// TestClaimsBring: what claims bring counts as requested, each amount once for the pod and the part
// of each container once for each that uses the claim.
func TestClaimsBring(t *testing.T) {
	pod := podtest.New("p", podtest.Containers("init! cpu=4", "a cpu=1 memory=1Gi", "b cpu=1"),
		podtest.Brings([]string{"a", "b"}, "cpu=2 memory=1Gi", "memory=100Mi", "memory=50Mi"),
		podtest.Brings([]string{"b"}, "memory=1Gi", "", "cpu=100m"),
		podtest.Brings(nil, "memory=1Gi", "memory=10Mi", "memory=10Mi"))
	r := Requests(pod)
	if cpu, memory := r.Cpu().MilliValue(), r.Memory().Value()>>20; cpu != 4000+2100 ||
		memory != 4*1024+210 {
		t.Errorf("%d milli-CPUs, %d MiB", cpu, memory)
	}
	for name, want := range map[string]int64{"a": 512 + 100, "b": 512 + 100 + 1024, "init": 0} {
		if got := BroughtMemory(pod, name) >> 20; got != want {
			t.Errorf("container %s: %d MiB, want %d", name, got, want)
		}
	}
	if Brought(podtest.New("q", podtest.Containers("a cpu=1")), "a") != nil {
		t.Error("no claim brings something")
	}
}
