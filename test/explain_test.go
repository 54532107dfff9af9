package test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// explainPod returns what "numalet explain" prints about a pod, or its error.
func explainPod(t *testing.T, n *harness.Node, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args = append([]string{"explain", "--server", strings.TrimSuffix(n.URL("/"), "/")}, args...)
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	return strings.Join(strings.Fields(string(out)), " "), err // undo the wrapping of lines
}

func TestExplain(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Start()
	n.Plugin("example.com/nic", "--devices=4", "--nodes=0-3")

	n.Pod("good", limited("good", "cpu: 4, memory: 1Gi, example.com/nic: 1"))
	n.AwaitPhase("good-node", v1.PodRunning)
	n.Pod("torn", limited("torn", "cpu: 2, memory: 1Gi, example.com/nic: 2"))
	n.AwaitPhase("torn-node", v1.PodFailed)
	n.Pod("idle", limited("idle", "cpu: 2, memory: 1Gi, example.com/none: 1"))
	n.Eventually("the pod without a plugin waits", func() error {
		pods, err := n.Pods()
		if err == nil && pods["idle-node"].Status.Reason != "WaitingForDevicePlugin" {
			err = fmt.Errorf("it is %+v", pods["idle-node"].Status)
		}
		return err
	})
	for pod, want := range map[string][]string{
		"good-node": {
			"Pod default/good-node: admitted", "main: 4 exclusive CPUs (gets ",
			"1 example.com/nic (gets ",
			"example.com/nic: 4 of 4 (1 of 1 on each of nodes 0-3)", "all together: node ",
		},
		"torn-node": {
			"Pod default/torn-node: rejected, TopologyAffinityError",
			"What is in the way: example.com/nic of container main: 2 asked for on one NUMA " +
				"node, and the largest has 1",
			"- container main with 1 example.com/nic instead of 2",
			"- the pod as it is, with topologyManagerPolicy: best-effort",
		},
		"idle-node": {
			"Pod default/idle-node: waiting, WaitingForDevicePlugin",
			"no device plugin has registered example.com/none",
		},
	} {
		out, err := explainPod(t, n, pod)
		if err != nil {
			t.Errorf("explain %s: %v\n%s", pod, err, out)
		}
		for _, part := range want {
			if !strings.Contains(out, part) {
				t.Errorf("explain %s lacks %q:\n%s", pod, part, out)
			}
		}
	}
	n.Eventually("the log says why the pod was rejected", func() error {
		if tail := n.LogTail(500); !strings.Contains(tail, "and the largest has 1; would fit: ") {
			return fmt.Errorf("the log ends:\n%s", tail)
		}
		return nil
	})

	if out, err := explainPod(t, n, "torn"); err != nil || !strings.Contains(out, "Pod default/torn-node: rejected") {
		t.Errorf("explain of a manifest's name: %v, %s", err, out)
	}
	if out, err := explainPod(t, n, "torn-node", "-n", "else"); err == nil ||
		!strings.Contains(out, "no pod else/torn-node is known") {
		t.Errorf("explain in another namespace: %v, %s", err, out)
	}
	// The record goes when the pod goes.
	n.RemovePod("torn")
	n.AwaitGone("torn-node")
	n.Eventually("the explanation is gone", func() error {
		resp, err := http.Get(n.URL("/debug/admission/default/torn-node"))
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			return fmt.Errorf("the answer is %s", resp.Status)
		}
		return nil
	})
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
	if out, err := explainPod(t, n, "good-node"); err == nil ||
		!strings.Contains(out, "set readOnlyPort") {
		t.Errorf("explain without an agent: %v, %s", err, out)
	}
}

// For a pod in a crash loop, explain says how its container ended, and shows its last log lines.
func TestExplainCrashLoop(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("loops", plain("loops", "main: exit=3 after=1ms"))
	n.Eventually("it is told how the container ends", func() error {
		out, err := explainPod(t, n, "loops-node")
		for _, want := range []string{"waiting, CrashLoopBackOff: back-off", "it exited with 3 (Error)",
			"1 restarts, its log is", "/main/1.log",
			"The last that container main has written", "exited code=3"} {
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("no %q in %s", want, out)
			}
		}
		return err
	})
}
