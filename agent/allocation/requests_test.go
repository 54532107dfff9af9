package allocation

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// As with the kubelet, limits say how many devices a container gets; requests that differ, which
// the API does not allow, say nothing.
func TestOnlyLimitsAreRequestsForDevices(t *testing.T) {
	list := func(gpus, nics string) v1.ResourceList {
		out := v1.ResourceList{"cpu": resource.MustParse("1")}
		for name, n := range map[v1.ResourceName]string{
			"example.com/gpu": gpus, "example.com/nic": nics, "hugepages-2Mi": "2Mi",
		} {
			if n != "" {
				out[name] = resource.MustParse(n)
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		requests, limits v1.ResourceList
		want             []podspec.DeviceRequest
	}{
		"requests alone": {list("2", "1"), nil, nil},
		"limits alone": {nil, list("2", "1"), []podspec.DeviceRequest{
			{Resource: "example.com/gpu", Count: 2}, {Resource: "example.com/nic", Count: 1},
		}},
		"both differ": {list("4", "1"), list("2", ""), []podspec.DeviceRequest{
			{Resource: "example.com/gpu", Count: 2},
		}},
		"a limit of 0": {list("1", ""), list("0", ""), nil},
	} {
		c := v1.Container{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits},
		}
		if got := podspec.DeviceRequests(&c); !slices.Equal(got, tc.want) {
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
