package podspec

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

// Sizes of volumes in memory are resources too; those of others, or without a limit, are not.
func TestVolumeSizes(t *testing.T) {
	pod := func(size string) *v1.Pod {
		p, limit := sized("2"), resource.MustParse(size)
		for name, source := range map[string]v1.EmptyDirVolumeSource{
			"shm": {Medium: v1.StorageMediumMemory, SizeLimit: &limit}, "disk": {SizeLimit: &limit},
			"free": {Medium: v1.StorageMediumMemory},
		} {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &source}})
		}
		slices.SortFunc(p.Spec.Volumes, func(a, b v1.Volume) int { return strings.Compare(b.Name, a.Name) })
		return p
	}
	admitted := ResourcesOf(pod("1Gi"))
	if size := admitted.Volumes["shm"]; len(admitted.Volumes) != 1 || size.String() != "1Gi" {
		t.Errorf("the volumes have %v", admitted.Volumes)
	}
	if same := pod("1024Mi"); admitted.In(same) != same {
		t.Error("the same size makes another pod")
	}
	wanted := pod("2Gi")
	got := admitted.In(wanted)
	if size := got.Spec.Volumes[0].EmptyDir.SizeLimit; got == wanted || size.String() != "1Gi" {
		t.Errorf("the volume has %v", size)
	}
	if size := wanted.Spec.Volumes[0].EmptyDir.SizeLimit; size.String() != "2Gi" {
		t.Errorf("the pod itself was changed: %v", size)
	}
	over := ResourcesOf(pod("2Gi")).Over(admitted)
	if size := over.Volumes["shm"]; size.String() != "1Gi" {
		t.Errorf("over the others it is %v", over.Volumes)
	}
}
