package allocation

import (
	"slices"
	"testing"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// As with the kubelet, limits say how many devices a container gets; requests that differ, which
// the API does not allow, say nothing.
func TestOnlyLimitsAreRequestsForDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus string
		want []podspec.DeviceRequest
	}{
		"requests alone": {"gpu=2.. nic=1..", nil},
		"limits alone": {"gpu=..2 nic=..1", []podspec.DeviceRequest{
			{Resource: "example.com/gpu", Count: 2}, {Resource: "example.com/nic", Count: 1},
		}},
		"both differ": {"gpu=4..2 nic=1..", []podspec.DeviceRequest{
			{Resource: "example.com/gpu", Count: 2},
		}},
		"a limit of 0": {"gpu=1..0", nil},
	} {
		resources := " cpu=1 hugepages-2Mi=2Mi " + tc.gpus
		pod := podtest.New("", podtest.Containers("side~"+resources, "main"+resources))
		if got := podspec.DeviceRequests(pod, &pod.Spec.Containers[0]); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if needs := (View{}).Needs(pod); needs != (len(tc.want) > 0) {
			t.Errorf("%s: the pod needs an assignment: %t", name, needs)
		}
		for _, want := range tc.want {
			if got := Amount(pod, want.Resource, topology.Rules{}); got != 2*want.Count {
				t.Errorf("%s: the pod has %d of %s at once", name, got, want.Resource)
			}
		}
	}
}
