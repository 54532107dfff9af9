package cpumanager_test

import (
	"testing"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// Only a container that gets whole cores, and exclusive CPUs, has fewer than it holds.
func TestUnpadded(t *testing.T) {
	pod := podtest.New("", podtest.Guaranteed("c cpu=3"))
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
