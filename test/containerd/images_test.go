package containerd_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/containerd/rig"
)

// TestImages pulls from a registry, with each policy.
func TestImages(t *testing.T) {
	const host = "pull.numalet.test"
	w := newWorld(t)
	push := rig.Registry(t, w.daemon, host)
	image, err := containerd.Image(rig.Program(t), "work")
	if err != nil {
		t.Fatal(err)
	}
	push(host+"/team/work:1", image)
	w.Start()
	create := func(name, image, policy string) {
		w.create(name, "containers: [{name: main, image: "+image+", args: [--print]"+policy+"}]")
	}
	reasons := func(s v1.ContainerStatus, reasons ...string) bool {
		for _, r := range reasons {
			if s.State.Waiting != nil && s.State.Waiting.Reason == r {
				return true
			}
		}
		return false
	}

	create("never", host+"/team/work:1", ", imagePullPolicy: Never")
	const absent = "is not present with pull policy of Never"
	w.awaitContainer("never-node", "main", "lacks the image", func(s v1.ContainerStatus) bool {
		return reasons(s, "ErrImageNeverPull") &&
			strings.Contains(s.State.Waiting.Message, absent)
	})
	create("late", host+"/team/late:1", "")
	w.awaitContainer("late-node", "main", "fails to pull", func(s v1.ContainerStatus) bool {
		return reasons(s, "ErrImagePull", "ImagePullBackOff")
	})
	w.awaitContainer("late-node", "main", "waits to pull again", func(s v1.ContainerStatus) bool {
		return reasons(s, "ImagePullBackOff") &&
			strings.Contains(s.State.Waiting.Message, host+"/team/late:1")
	})
	create("invalid", "team/Work", "")
	w.awaitContainer("invalid-node", "main", "has a name that is none",
		func(s v1.ContainerStatus) bool { return reasons(s, "InvalidImageName") })
	create("present", host+"/team/work:1", "")
	pod := w.AwaitPhase("present-node", v1.PodRunning)
	if s := w.statusOf(pod, "main"); s.Image != host+"/team/work:1" ||
		!strings.Contains(s.ImageID, "sha256:") {
		t.Errorf("image %q, id %q", s.Image, s.ImageID)
	}
	w.report(pod, "main")

	push(host+"/team/late:1", image)
	w.AwaitPhase("late-node", v1.PodRunning)
	w.AwaitPhase("never-node", v1.PodRunning) // it is present now

	// Without the registry, an image that is there is enough unless the policy is Always.
	if err := w.daemon.UseRegistry(host, "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	create("again", host+"/team/work:1", "")
	create("always", host+"/team/work:1", ", imagePullPolicy: Always")
	w.AwaitPhase("again-node", v1.PodRunning)
	w.awaitContainer("always-node", "main", "pulls although the image is there",
		func(s v1.ContainerStatus) bool { return reasons(s, "ErrImagePull", "ImagePullBackOff") })
}
