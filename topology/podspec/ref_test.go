package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestFieldPath(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}, {Name: "aside", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "main"}},
		EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	for name, want := range map[string]string{
		"init": "spec.initContainers{init}", "aside": "spec.initContainers{aside}",
		"main": "spec.containers{main}", "debug": "spec.ephemeralContainers{debug}", "none": "",
	} {
		if got := (Ref{pod, name}).FieldPath(); got != want {
			t.Errorf("%s stands at %q, want %q", name, got, want)
		}
	}
}
