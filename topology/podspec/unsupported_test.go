package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestWithoutEffect(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		ActiveDeadlineSeconds: ptr.To[int64](1),
		Containers: []v1.Container{{Name: "c", LivenessProbe: &v1.Probe{},
			Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}},
			RestartPolicyRules: []v1.ContainerRestartRule{
				{Action: v1.ContainerRestartRuleActionRestart},
				{Action: v1.ContainerRestartRuleActionRestartAllContainers},
			}}},
		EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	want := []string{"spec.containers[c].restartPolicyRules: action RestartAllContainers"}
	if diff := cmp.Diff(want, WithoutEffect(pod)); diff != "" {
		t.Error("-want +got:\n", diff)
	}
	if got := WithoutEffect(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}); got != nil {
		t.Errorf("of a plain pod: %q", got)
	}
}

func TestAwaited(t *testing.T) {
	for want, spec := range map[string]v1.PodSpec{
		"": {RuntimeClassName: ptr.To("")},
		`spec.resourceClaims: resource claim "gpu"`: {
			ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}}},
	} {
		if got := Awaited(&v1.Pod{Spec: spec}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
