package volume

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// images are volumes that the runtime mounts itself (KEP-4639): there is nothing of them in the pod's
// directory.
func images() plugin {
	return plugin{
		field: "image", name: "kubernetes.io/image", relabel: true,
		setUp: func(context.Context, *Volumes, target) (time.Time, error) {
			return time.Time{}, nil
		},
		path: func(used) string { return "" },
	}
}

// imageMount makes m a mount of an image, of which the runtime knows the path in it, if any. ref is the
// runtime's own name of the image.
func imageMount(
	m *runtimeapi.Mount, pod *v1.Pod, volume v1.Volume, ref string,
) (*runtimeapi.Mount, error) {
	if ref == "" {
		return nil, fmt.Errorf("image %q is not there yet", volume.Image.Reference)
	}
	m.HostPath, m.Readonly = "", true
	m.Image = &runtimeapi.ImageSpec{
		Image: ref, UserSpecifiedImage: volume.Image.Reference, Annotations: pod.Annotations,
	}
	return m, nil
}
