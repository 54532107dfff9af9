package test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// has checks that the runtime has exactly these images.
func has(n *harness.Node, want ...string) error {
	if got := n.Runtime.State().Images; !slices.Equal(got, want) {
		return fmt.Errorf("there are %q, want %q", got, want)
	}
	return nil
}

// TestUnusedImages: unused images are removed when the disk is fuller than the threshold, images of
// existing pods stay, and the metric counts removals.
func TestUnusedImages(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["imageGCHighThresholdPercent"] = 1 // every machine's disk is fuller than that
	n.Settings["imageGCLowThresholdPercent"] = 0
	n.Settings["imageMinimumGCAge"] = "1ms"
	n.Start()
	uses := func(name, image, script string) {
		n.Pod(name, manifestOf(name, "restartPolicy: Never\n  containers: [{name: main, image: "+
			image+"}]", "main: "+script))
	}
	uses("runs", "sim.local/app", "")
	uses("done", "sim.local/done", "exit=0 after=1ms")
	uses("gone", "sim.local/gone", "")
	n.AwaitPhase("runs-node", v1.PodRunning)
	n.AwaitPhase("done-node", v1.PodSucceeded)
	n.AwaitPhase("gone-node", v1.PodRunning)
	n.RemovePod("gone")
	n.AwaitGone("gone-node")
	// The image of the completed pod is in use as long as the runtime has its container.
	n.Eventually("the image of the pod that is gone is gone", func() error {
		return has(n, "sim.local/app:latest", "sim.local/done:latest")
	})
	n.Eventually("the image is counted", func() error { // which happens after its removal
		const want = `kubelet_image_garbage_collected_total{reason="space"} 1`
		if !strings.Contains(n.Get("/metrics"), want) {
			return errors.New("no " + want)
		}
		return nil
	})
}

// TestOldImages: an image that has been unused for long is removed, however much room there is.
func TestOldImages(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["imageMinimumGCAge"] = "1ms"
	n.Settings["imageMaximumGCAge"] = "2ms"
	n.Start()
	n.Pod("gone", plain("gone"))
	n.AwaitPhase("gone-node", v1.PodRunning)
	n.RemovePod("gone")
	n.AwaitGone("gone-node")
	n.Eventually("the image is gone", func() error { return has(n) })
	n.Eventually("it is counted", func() error { // it is counted after its removal
		if want := `{reason="age"} 1`; !strings.Contains(n.Get("/metrics"), want) {
			return fmt.Errorf("no %s", want)
		}
		return nil
	})
}
