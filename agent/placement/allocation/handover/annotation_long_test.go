package handover

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/cri"
)

// Long answers are not on a container, devices always are. That the annotation says less is no
// reason to believe that the state is wrong.
func TestContainerAnnotationIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		devices, answer int
		answered, fits  bool
	}{
		"small":                     {8, 100, true, true},
		"a long answer":             {8, 40_000, false, true},
		"many devices":              {5000, 100, false, false},
		"many devices, long answer": {5000, 40_000, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := allocation.DeviceSet{Resource: "example.com/gpu", Answer: make([]byte, tc.answer)}
			for i := range tc.devices {
				d.IDs = append(d.IDs, fmt.Sprintf("GPU-%036d", i))
			}
			p := allocationtest.Pod("a")
			p.Containers = map[string]allocation.Container{"main": {
				allocation.CPUs(cpuset.New(2)), allocation.Devices{d},
			}}
			runs := running(t, p)
			if n := len(runs.Containers[0].Annotations[Annotation]); n <= longest != tc.fits {
				t.Errorf("the annotation has %d bytes", n)
			}
			changes, err := Rebuild(allocationtest.State(p), []cri.Pod{runs}, p.BootID, nil)
			if err != nil || len(changes) > 0 {
				t.Errorf("the state is changed in %d places, %v", len(changes), err)
			}
			changes, err = Rebuild(allocation.State{}, []cri.Pod{runs}, p.BootID, nil)
			if err != nil || len(changes) != 1 {
				t.Fatalf("of a lost state %d pods are found, %v", len(changes), err)
			}
			got := changes[0].Put.Containers["main"].Devices()[0]
			if diff := cmp.Diff(d.IDs, got.IDs); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if (got.Answer != nil) != tc.answered {
				t.Errorf("the answer has %d bytes", len(got.Answer))
			}
		})
	}
}
