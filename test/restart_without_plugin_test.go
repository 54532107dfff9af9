package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestRunsAgainWithoutItsPlugin: a pod whose sandbox ended while the agent was down runs again with
// the recorded devices and Allocate answers, even without its plugin.
func TestRunsAgainWithoutItsPlugin(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	_, stop := n.Plugin("example.com/gpu")
	n.Pod("own", limited("own", "cpu: 1, memory: 1Gi, example.com/gpu: 2"))
	n.AwaitPhase("own-node", v1.PodRunning)
	had := container(t, n, "own-node", "main")
	n.Kill()
	stop()
	if err := n.Runtime.KillSandbox(had.Subject.Namespace + "/own-node"); err != nil {
		t.Fatal(err)
	}
	n.Start()
	awaitPod(n, "own-node", func(pod v1.Pod) error {
		c := pod.Status.ContainerStatuses
		if len(c) != 1 || !c[0].Ready || strings.HasSuffix(c[0].ContainerID, had.Subject.ID) {
			return fmt.Errorf("its status is %+v", pod.Status)
		}
		return nil
	})
	is := harness.DevicesOf(container(t, n, "own-node", "main"), "example.com/gpu")
	if was := harness.DevicesOf(had, "example.com/gpu"); len(is) != 2 || !slices.Equal(is, was) {
		t.Errorf("it has %q, and had %q", is, was)
	}
}
