package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

func sized(cpu string) *v1.Pod {
	return podtest.New("", podtest.Containers("i! cpu=1", "a cpu="+cpu, "b"))
}

// A pod with other resources becomes a copy; with equal amounts, however written, it stays itself.
func TestResourcesIn(t *testing.T) {
	admitted := ResourcesOf(sized("2"))
	same := sized("2000m")
	if got := admitted.In(same); got != same {
		t.Error("the same amounts make another pod")
	}
	wanted := sized("4")
	wanted.Generation = 7
	podtest.Containers("new")(wanted)
	got := admitted.In(wanted)
	if cpu := got.Spec.Containers[0].Resources.Limits.Cpu(); cpu.Value() != 2 ||
		len(got.Spec.Containers) != 3 || got.Generation != 7 {
		t.Errorf("it has %v CPUs and %d containers", cpu, len(got.Spec.Containers))
	}
	if wanted.Spec.Containers[0].Resources.Limits.Cpu().Value() != 4 {
		t.Error("the pod itself was changed")
	}
	whole := sized("2")
	whole.Spec.Resources = &v1.ResourceRequirements{}
	if got := admitted.In(whole); got == whole || got.Spec.Resources != nil {
		t.Error("resources of the pod as a whole stay")
	}
}
