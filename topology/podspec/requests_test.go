package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// What a resource claim stands for is asked of no device plugin, and not of what the node has.
func TestExtendedResourcesByClaim(t *testing.T) {
	const gpu, nic = "example.com/gpu", "example.com/nic"
	pod := podtest.New("", podtest.Containers("a gpu=2 nic=1", "b gpu=2 nic=1"))
	status := &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim"}
	for _, c := range []string{"a", "b"} {
		status.RequestMappings = append(status.RequestMappings, v1.ContainerExtendedResourceRequest{
			ContainerName: c, ResourceName: gpu, RequestName: "request-0"})
	}
	pod.Status.ExtendedResourceClaimStatus = status
	for i := range pod.Spec.Containers {
		got := DeviceRequests(pod, &pod.Spec.Containers[i])
		if len(got) != 1 || got[0] != (DeviceRequest{Resource: nic, Count: 1}) {
			t.Errorf("container %d asks plugins for %v", i, got)
		}
	}
	requests := Requests(pod)
	_, counted := requests[gpu]
	if nics := requests[nic]; counted || nics.Value() != 2 {
		t.Errorf("the pod asks the node for %v", requests)
	}
	if all := AllDevices(pod); all[gpu] != 0 || all[nic] != 2 {
		t.Errorf("it has %d and %d devices of plugins", all[gpu], all[nic])
	}
}
