package volume

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// images are volumes that the runtime mounts itself (KEP-4639). The pod's directory has nothing of
// them.
func images() plugin {
	return plugin{
		from: inPods, field: "image", name: "kubernetes.io/image", relabel: true,
		setUp: func(context.Context, *makers, target) (time.Time, error) {
			return time.Time{}, nil
		},
		path:  func(used) string { return "" },
		mount: imageMount,
	}
}

func imageMount(m *runtimeapi.Mount, pod *v1.Pod, u used, start Start) error {
	named, image := u.volume.Image.Reference, start.Images[u.volume.Name]
	if image == "" {
		return fmt.Errorf("image %q is not there yet", named)
	}
	m.HostPath, m.Readonly = "", true
	m.Image = &runtimeapi.ImageSpec{
		Image: image, UserSpecifiedImage: named, Annotations: pod.Annotations,
		RuntimeHandler: start.ImageHandler,
	}
	return nil
}
