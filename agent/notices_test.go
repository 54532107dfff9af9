package agent

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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
	lacking := plain.DeepCopy()
	lacking.Name, lacking.UID = "lacking", "2"
	lacking.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{DefaultUser: ptr.To[int64](1)}}}}
	more := lacking.DeepCopy()
	more.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{
		BindMountOptions: []string{"noexec"}}}
	for _, pod := range []*v1.Pod{plain, lacking, lacking, lacking.DeepCopy(), more} {
		n.look(podworker.Report{Pod: pod})
	}
	const about = " Warning FieldsWithoutEffect Without effect in this version of numalet: "
	want := []string{
		"lacking" + about + "spec.volumes[v].secret.defaultUser",
		"lacking" + about + "spec.volumes[v].secret.defaultUser, " +
			"spec.containers[c].volumeMounts[0].bindMountOptions",
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
