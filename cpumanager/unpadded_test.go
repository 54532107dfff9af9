package cpumanager_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/podspec"
)

// Only a container that gets whole cores, and exclusive CPUs, has fewer than it holds.
func TestUnpadded(t *testing.T) {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"),
		v1.ResourceMemory: resource.MustParse("1Mi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c",
		Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}}}}
	for value, want := range map[string]int{"": 0, "false": 0, "true": 3} {
		pod.Annotations = map[string]string{podspec.AnnotationWholeCores: value}
		if got := cpumanager.Unpadded(pod, "c"); got != want {
			t.Errorf("whole cores %q: %d, want %d", value, got, want)
		}
	}
	if got := cpumanager.Unpadded(pod, "other"); got != 0 {
		t.Errorf("a container that does not exist: %d", got)
	}
	pod.Spec.Containers[0].Resources.Requests = nil
	if got := cpumanager.Unpadded(pod, "c"); got != 0 {
		t.Errorf("on shared CPUs: %d", got)
	}
}
