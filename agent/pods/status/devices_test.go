package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// The health of a container's devices is updated while it holds them, and stays afterwards.
func TestDevicesOfAStatus(t *testing.T) {
	pod := podtest.New("", podtest.Containers("init!", "main"))
	health := func(h v1.ResourceHealthStatus) []v1.ResourceStatus {
		return []v1.ResourceStatus{{
			Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "a", Health: h}},
		}}
	}
	in := Input{Pod: pod, Devices: map[string][]v1.ResourceStatus{
		"init": health("Healthy"), "main": health("Unhealthy"),
	}}
	check := func(s v1.PodStatus) {
		t.Helper()
		for name, want := range map[string]v1.ResourceHealthStatus{
			"init": "Healthy", "main": "Unhealthy",
		} {
			got := podspec.ByContainer(&s)[name].AllocatedResourcesStatus
			if len(got) != 1 || got[0].Resources[0].Health != want {
				t.Errorf("container %s has %+v, want %s", name, got, want)
			}
		}
	}
	s := Generate(in)
	check(s)
	check(Generate(Input{Pod: pod, Previous: s})) // the pod has released its devices
	if s := Generate(Input{Pod: pod}); podspec.ByContainer(&s)["main"].AllocatedResourcesStatus != nil {
		t.Errorf("without devices there is %+v", s)
	}
}
