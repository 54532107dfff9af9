package cri

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The hook comes from the spec, or from the annotations of a container that the spec no longer has.
func TestPreStop(t *testing.T) {
	sleep := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 7}}
	spec := v1.Container{Name: "c", Lifecycle: &v1.Lifecycle{PreStop: sleep},
		Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 80}}}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{spec, {Name: "none"}}}}
	made := Container{Name: "c", Annotations: containerAnnotations(pod, &spec, 0, map[string]string{})}
	if c, hook := PreStop(pod, made); hook != sleep || c != &pod.Spec.Containers[0] {
		t.Errorf("of the spec: %v", hook)
	}
	if _, hook := PreStop(pod, Container{Name: "none", Annotations: made.Annotations}); hook != nil {
		t.Errorf("of a container without: %v", hook)
	}
	c, hook := PreStop(&v1.Pod{}, made)
	if hook == nil || hook.Sleep.Seconds != 7 || len(c.Ports) != 1 || c.Ports[0].Name != "web" {
		t.Errorf("of an orphan: %v, %v", c, hook)
	}
	made.Annotations[AnnotationPreStopHandler] = "{"
	for _, c := range []Container{made, {Name: "bare"}} {
		if _, hook := PreStop(&v1.Pod{}, c); hook != nil {
			t.Errorf("of %v: %v", c.Annotations, hook)
		}
	}
}
