package handlers

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
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
		f, want := NewFeatures(test.declared, version.MustParseGeneric("1.37")), decide.Refusal{}
		if test.want != "" {
			want = decide.Refusal{Reason: "PodFeatureUnsupported",
				Message: "Pod requires node features that are not available: " + test.want}
		}
		got := decide.Refusal{}
		if r := f.Refuse(decide.Attempt{Demand: decide.DemandOf(&v1.Pod{Spec: test.spec}, nil, topology.Rules{})}); r != nil {
			got = *r
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// What a change of a pod takes is compared with the change alone.
func TestFeaturesOfAChange(t *testing.T) {
	was := podtest.New("", podtest.Containers("c cpu=1"), podtest.Resources("cpu=1.."))
	is := podtest.New("", podtest.Containers("c cpu=1"), podtest.Resources("cpu=2.."))
	const resizes = "InPlacePodLevelResourcesVerticalScaling"
	for declared, want := range map[string]string{"": "[" + resizes + "]", resizes: "[]"} {
		f := NewFeatures([]string{declared}, version.MustParseGeneric("1.37"))
		if got := fmt.Sprint(f.Lacking(was, is)); got != want {
			t.Errorf("with %q declared: %s, want %s", declared, got, want)
		}
		if got := f.Lacking(is, is.DeepCopy()); len(got) > 0 {
			t.Errorf("with %q declared nothing changed, and %v is lacking", declared, got)
		}
	}
}
