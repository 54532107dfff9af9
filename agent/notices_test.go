package agent

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What of a pod has no effect is told once, and again when the pod gets more of it.
func TestNotices(t *testing.T) {
	var told []string
	n := newNotices(func(pod *v1.Pod, eventType, reason, message string) {
		told = append(told, pod.Name+" "+eventType+" "+reason+" "+message)
	})
	plain := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	plain.Name, plain.UID = "plain", "1"
	probed := plain.DeepCopy()
	probed.Name, probed.UID = "probed", "2"
	probed.Spec.Containers[0].LivenessProbe = &v1.Probe{}
	debugged := probed.DeepCopy()
	debugged.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "sh"}}}
	for _, pod := range []*v1.Pod{plain, probed, probed, probed.DeepCopy(), debugged} {
		n.look(pod)
	}
	const about = " Warning FieldsWithoutEffect Without effect in this version of numalet: "
	want := []string{
		"probed" + about + "spec.containers[c].livenessProbe",
		"probed" + about + "spec.containers[c].livenessProbe, spec.ephemeralContainers[sh]",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	n.gone("1")
	n.gone("2")
	if len(n.pods) != 0 {
		t.Errorf("%d pods are remembered that are gone", len(n.pods))
	}
}
