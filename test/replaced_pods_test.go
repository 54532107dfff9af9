package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// TestReplacedPod: a changed manifest is another pod with the same name. It waits until nothing of
// the old one runs.
func TestReplacedPod(t *testing.T) {
	for _, script := range []string{"main: term=143", "main: term=ignore"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			n.Start()
			spec := func(version string) string {
				return manifestOf("app", fmt.Sprintf(`terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "sim.local/app:%s"}]`, version), script)
			}
			n.Pod("app", spec("v1"))
			old := n.AwaitPhase("app-node", v1.PodRunning)
			n.Pod("app", spec("v2"))
			awaitPod(n, "app-node", func(pod v1.Pod) error {
				if pod.UID == old.UID || pod.Status.Phase != v1.PodRunning {
					return fmt.Errorf("it is %s of %s", pod.Status.Phase, pod.UID)
				}
				return nil
			})
			if got := container(t, n, "app-node", "main"); got.Subject.UID == string(old.UID) {
				t.Errorf("the container is still the old pod's")
			}
			sandboxes := calls(n, call{method: "RunPodSandbox", pod: "app-node"})
			if len(sandboxes) != 2 {
				t.Fatalf("sandboxes were created %d times: %+v", len(sandboxes), sandboxes)
			}
			for _, c := range calls(n, call{method: "StopContainer", pod: "app-node"}) {
				if c.End == 0 || c.End > sandboxes[1].Begin {
					t.Errorf("the new pod began before the old one's container had stopped: %+v", c)
				}
			}
			n.Eventually("nothing of the old pod is left", func() error {
				if got := n.Runtime.State().Sandboxes; len(got) != 1 {
					return fmt.Errorf("there are %d sandboxes", len(got))
				}
				return nil
			})
		})
	}
}

// TestManifestRemovedAndWritten: a manifest that is removed and written again at once ends its pod,
// and the same pod starts again.
func TestManifestRemovedAndWritten(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("app", plain("app"))
	old := n.AwaitPhase("app-node", v1.PodRunning)
	n.RemovePod("app")
	n.Pod("app", plain("app"))
	awaitPod(n, "app-node", func(pod v1.Pod) error {
		c := pod.Status.ContainerStatuses
		if pod.UID != old.UID || pod.Status.Phase != v1.PodRunning || len(c) != 1 ||
			c[0].ContainerID == old.Status.ContainerStatuses[0].ContainerID || c[0].RestartCount != 1 {
			return fmt.Errorf("pod %s is %+v", pod.UID, pod.Status)
		}
		return nil
	})
}

// TestGraceOnlyShrinks: while a pod terminates, a shorter grace period takes effect and a longer
// one does not.
func TestGraceOnlyShrinks(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	pod := func(grace int) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
"metadata": {"name": "app", "uid": "u1", "annotations": {%q: "term=ignore"}},
"spec": {"terminationGracePeriodSeconds": %d, "containers": [
{"name": "main", "image": "sim.local/app"}]}}`, crisim.AnnotationPrefix+"main", grace)
	}
	n.Pod("app", pod(3600))
	n.AwaitPhase("app-node", v1.PodRunning)
	n.RemovePod("app")
	awaitLogged(t, n, `"Pod REMOVE"`, "default/app-node")
	awaitCalls(n, 1, call{method: "StopContainer"})
	// While the pod terminates it is desired again and removed again, with another grace period.
	for i, grace := range []int{3, 3600} {
		n.Pod("app", pod(grace))
		n.Eventually("the pod is seen again", func() error {
			if got := logged(t, n, `"Pod ADD"`, "default/app-node"); got < i+2 {
				return fmt.Errorf("seen %d times", got)
			}
			return nil
		})
		n.RemovePod("app")
		n.Eventually("the pod is seen to go", func() error {
			if got := logged(t, n, `"Pod REMOVE"`, "default/app-node"); got < i+2 {
				return fmt.Errorf("seen %d times", got)
			}
			return nil
		})
	}
	n.AwaitGone("app-node")
	if got := len(calls(n, call{method: "StopContainer"})); got < 2 {
		t.Errorf("the container was told to stop %d times, want a second time with the shorter "+
			"grace", got)
	}
}

// TestDesiredWhileItsRemainsAreRemoved: a pod is desired again while the agent removes what an
// earlier run left of it. It then starts anew, is listed, and has exclusive CPUs.
func TestDesiredWhileItsRemainsAreRemoved(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	eager(n)
	pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
"metadata": {"name": "app", "uid": "u1", "annotations": {%q: "term=ignore"}},
"spec": {"containers": [{"name": "main", "image": "sim.local/app",
"resources": {"limits": {"cpu": 2, "memory": "64Mi"}}}]}}`, crisim.AnnotationPrefix+"main")
	n.Start()
	n.Pod("app", pod)
	n.AwaitPhase("app-node", v1.PodRunning)
	old := container(t, n, "app-node", "main")
	n.Kill()
	n.RemovePod("app")
	n.Start()
	awaitCalls(n, 1, call{method: "StopContainer"})
	n.Pod("app", pod)
	n.Eventually("the pod runs in another container", func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		if got, ok := pods["app-node"]; !ok || got.Status.Phase != v1.PodRunning {
			return fmt.Errorf("known %t, phase %s", ok, got.Status.Phase)
		}
		if len(n.Runtime.State().Sandboxes) != 1 {
			return fmt.Errorf("the old sandbox is there")
		}
		return nil
	})
	if now := container(t, n, "app-node", "main"); now.Subject.ID == old.Subject.ID {
		t.Error("it is the old container")
	}
	// A second pod, which is admitted afterwards, shows that the CPUs still belong to the first.
	n.Pod("other", limited("other", "cpu: 2, memory: 64Mi"))
	n.AwaitPhase("other-node", v1.PodRunning)
	rows := placements(t, n)
	first, second := rows["app-node/main"], rows["other-node/main"]
	if !first.Exclusive || !second.Exclusive || first.CPUs == second.CPUs {
		t.Errorf("the pods have %+v and %+v", first, second)
	}
}

// TestTouchTriesAgain: a rejected pod stays rejected even if there is room again, until its
// manifest is touched. Running pods are left alone.
func TestTouchTriesAgain(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["maxPods"] = 1
	n.Start()
	touch := func(name string) {
		now := time.Now()
		if err := os.Chtimes(filepath.Join(n.Manifests, name+".yaml"), now, now); err != nil {
			t.Fatal(err)
		}
	}
	n.Pod("first", plain("first"))
	first := n.AwaitPhase("first-node", v1.PodRunning)
	n.Pod("second", plain("second"))
	second := n.AwaitPhase("second-node", v1.PodFailed)
	touch("first")
	if ran := n.AwaitPhase("first-node", v1.PodRunning); ran.UID != first.UID {
		t.Errorf("the first pod has the UID %s, had %s", ran.UID, first.UID)
	}
	n.RemovePod("first")
	n.AwaitGone("first-node")
	n.AwaitPhase("second-node", v1.PodFailed)
	touch("second")
	if ran := n.AwaitPhase("second-node", v1.PodRunning); ran.UID != second.UID {
		t.Errorf("the second pod has the UID %s, had %s", ran.UID, second.UID)
	}
	starts := len(calls(n, call{method: "RunPodSandbox", pod: "first-node"}))
	if starts != 1 {
		t.Errorf("the first pod was started %d times", starts)
	}
}
