package agent

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// What of a pod has no effect is told once, and again when the pod gets more of it.
func TestNotices(t *testing.T) {
	var told []string
	n := newNotices(func(pod *v1.Pod, eventType, reason, message string) {
		told = append(told, pod.Name+" "+eventType+" "+reason+" "+message)
	}, nil)
	plain := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	plain.Name, plain.UID = "plain", "1"
	probed := plain.DeepCopy()
	probed.Name, probed.UID = "probed", "2"
	probed.Spec.Containers[0].LivenessProbe = &v1.Probe{}
	debugged := probed.DeepCopy()
	debugged.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "sh"}}}
	for _, pod := range []*v1.Pod{plain, probed, probed, probed.DeepCopy(), debugged} {
		n.look(podworker.Report{Pod: pod})
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

// That a container waits since it ended is told once for each of its ends.
func TestBackOffIsTold(t *testing.T) {
	var told []string
	n := newNotices(nil, func(of podspec.Ref, eventType, reason, message string) {
		told = append(told, of.Container+" "+eventType+" "+reason+" "+message)
	})
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	pod.Name, pod.Namespace, pod.UID = "p", "shop", "1"
	for _, step := range []struct{ id, reason string }{
		{"1", ""}, {"1", cri.ReasonCrashLoopBackOff}, {"1", cri.ReasonCrashLoopBackOff},
		{"2", ""}, {"2", cri.ReasonCrashLoopBackOff}, {"2", cri.ReasonImagePullBackOff},
	} {
		r := podworker.Report{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{
			{Name: "b", ID: step.id}}}}
		r.Decision.Waiting = map[string]status.Reason{"a": {Reason: cri.ReasonCrashLoopBackOff},
			"b": {Reason: step.reason}}
		n.look(r)
	}
	const want = "b Warning BackOff Back-off restarting failed container b in pod p_shop(1)"
	if !slices.Equal(told, []string{want, want}) {
		t.Errorf("told %q", told)
	}
}
