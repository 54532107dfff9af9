package allocation

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// As with the kubelet, limits say how many devices a container gets; requests that differ, which
// the API does not allow, say nothing.
func TestOnlyLimitsAreRequestsForDevices(t *testing.T) {
	gpus := func(amounts string) v1.ResourceList {
		return podtest.Amounts("cpu=1 hugepages-2Mi=2Mi gpu=" + amounts)
	}
	for name, tc := range map[string]struct {
		requests, limits v1.ResourceList
		want             []podspec.DeviceRequest
	}{
		"requests alone": {gpus("2 nic=1"), nil, nil},
		"limits alone": {nil, gpus("2 nic=1"), []podspec.DeviceRequest{
			{Resource: "example.com/gpu", Count: 2}, {Resource: "example.com/nic", Count: 1},
		}},
		"both differ": {gpus("4 nic=1"), gpus("2"), []podspec.DeviceRequest{
			{Resource: "example.com/gpu", Count: 2},
		}},
		"a limit of 0": {gpus("1"), gpus("0"), nil},
	} {
		c := v1.Container{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits},
		}
		if got := podspec.DeviceRequests(&v1.Pod{}, &c); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		side := c
		side.Name, side.RestartPolicy = "side", ptr.To(v1.ContainerRestartPolicyAlways)
		pod := &v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{side}, Containers: []v1.Container{c},
		}}
		if needs := (View{}).Needs(pod); needs != (len(tc.want) > 0) {
			t.Errorf("%s: the pod needs an assignment: %t", name, needs)
		}
		for _, want := range tc.want {
			if got := Amount(pod, want.Resource); got != 2*want.Count {
				t.Errorf("%s: the pod has %d of %s at once", name, got, want.Resource)
			}
		}
	}
}
