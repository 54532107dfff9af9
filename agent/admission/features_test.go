package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
)

func TestFeatures(t *testing.T) {
	restarts := v1.PodSpec{Containers: []v1.Container{{
		RestartPolicyRules: []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestartAllContainers}},
	}}}
	const all = "RestartAllContainersOnContainerExits"
	for name, test := range map[string]struct {
		spec     v1.PodSpec
		declared []string
		want     string
	}{
		"nothing needed":        {declared: []string{all}},
		"declared":              {spec: restarts, declared: []string{"ExtendWebSocketsToKubelet", all}},
		"not declared":          {spec: restarts, want: all},
		"declared, but unknown": {spec: restarts, declared: []string{"Antigravity"}, want: all},
		"two at once": {
			spec: v1.PodSpec{
				HostNetwork: true, HostUsers: ptr.To(false),
				InitContainers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{
					BindMountOptions: []string{"noexec"}}}}},
			},
			declared: []string{all},
			want:     "UserNamespacesHostNetworkSupport, VolumeBindMountOptions",
		},
	} {
		check, want := Features(test.declared, version.MustParseGeneric("1.37")), Refusal{}
		if test.want != "" {
			want = Refusal{Reason: "PodFeatureUnsupported",
				Message: "Pod requires node features that are not available: " + test.want}
		}
		got := Refusal{}
		if r := check(Attempt{Pod: &v1.Pod{Spec: test.spec}}); r != nil {
			got = *r
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
