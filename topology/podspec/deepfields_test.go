package podspec

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestFieldsWithoutEffect(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Volumes: []v1.Volume{
			{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
				Mode: ptr.To[int32](0o700)}}},
			{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				DefaultUser: ptr.To[int64](1), DefaultMode: ptr.To[int32](0o400),
				Sources: []v1.VolumeProjection{{}, {Secret: &v1.SecretProjection{
					Items: []v1.KeyToPath{{User: ptr.To[int64](2)}}}}}}}},
			{Name: "plain", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		},
		Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{
			{Name: "plain"}, {Name: "e", BindMountOptions: []string{"noexec"}}},
			StartupProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
				HTTPGet: &v1.HTTPGetAction{Protocol: ptr.To(v1.HTTPProtocolHTTP1)}}},
			ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
				GRPC: &v1.GRPCAction{Mode: ptr.To(v1.GRPCProbeModePlaintext)}}},
			LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
				GRPC: &v1.GRPCAction{Port: 1, Mode: ptr.To(v1.GRPCProbeModeTLS)}}}}},
	}}
	want := []string{"spec.volumes[e].emptyDir.mode",
		"spec.volumes[p].projected.sources[1].secret.items[0].user",
		"spec.volumes[p].projected.defaultUser", "spec.containers[c].livenessProbe.grpc.mode"}
	none := func(string) bool { return false }
	if got := WithoutEffect(pod, none); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	modes := func(gate string) bool { return gate == "EmptyDirVolumeMode" }
	if got := WithoutEffect(pod, modes); !slices.Equal(got, want[1:]) {
		t.Errorf("with a gate on: got  %q\nwant %q", got, want[1:])
	}
}
