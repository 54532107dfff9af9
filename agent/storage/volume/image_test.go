package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestImageMount: the runtime is told the image, the name in the pod's spec, and the runtime handler. It
// mounts the image read-only; the host has no path of it.
func TestImageMount(t *testing.T) {
	for _, handler := range []string{"", "runsc"} {
		v, _ := newVolumes(t, Config{})
		pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: "data:1"}}})
		pod.Annotations = map[string]string{"a": "b"}
		mounts, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{
			Images: map[string]string{"v": "sha256:d"}, ImageHandler: handler})
		want := []*runtimeapi.Mount{{ContainerPath: "/v", Readonly: true, SelinuxRelabel: true,
			Image: &runtimeapi.ImageSpec{Image: "sha256:d", UserSpecifiedImage: "data:1",
				Annotations: pod.Annotations, RuntimeHandler: handler}}}
		if err != nil {
			t.Fatalf("handler %q: %v", handler, err)
		}
		if diff := cmp.Diff(want, mounts, protocmp.Transform()); diff != "" {
			t.Errorf("handler %q (-want +got):\n%s", handler, diff)
		}
	}
}
