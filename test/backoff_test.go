package test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// gaps returns the times between consecutive starts of a container. It leaves out the first,
// because a container is started again at once after its first exit.
func gaps(starts []crisim.Call) []time.Duration {
	var out []time.Duration
	for i := 2; i < len(starts); i++ {
		out = append(out, starts[i].At.Sub(starts[i-1].At))
	}
	return out
}

// TestBackOffDoubles checks the first restarts with the default back-off. They may come late on
// slow machines, but never early.
func TestBackOffDoubles(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("crash", plain("crash", "main: exit=1 after=1ms"))
	start := call{method: "StartContainer", pod: "crash-node"}
	why := awaitReason(n, "crash-node", "CrashLoopBackOff")
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("back-off 10s restarting failed container=main pod=crash-node_default(%s)",
		pods["crash-node"].UID)
	if why.Message != want {
		t.Errorf("message %q, want %q", why.Message, want)
	}
	for i, got := range gaps(awaitCalls(n, 4, start)) {
		if least := 10 * time.Second << i; got < least {
			t.Errorf("restart %d came after %v, want at least %v", i+2, got, least)
		}
	}
	awaitPod(n, "crash-node", func(pod v1.Pod) error {
		s := statusOf(t, pod, "main")
		if s.RestartCount != 3 || s.State.Waiting == nil ||
			s.LastTerminationState.Terminated == nil {
			return fmt.Errorf("the container is %+v", s)
		}
		return nil
	})
}

func TestBackOffMaximum(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "2s"}
	n.Start()
	n.Pod("crash", plain("crash", "main: exit=0 after=1ms"))
	for i, got := range gaps(awaitCalls(n, 5, call{method: "StartContainer", pod: "crash-node"})) {
		if got < 2*time.Second {
			t.Errorf("restart %d came after %v, want at least 2s", i+2, got)
		}
	}
}

// TestBackOffSurvivesARestart checks that killing the agent does not end a back-off.
func TestBackOffSurvivesARestart(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("crash", plain("crash", "main: exit=1 after=1ms"))
	awaitReason(n, "crash-node", "CrashLoopBackOff")
	n.Kill()
	n.Start()
	awaitReason(n, "crash-node", "CrashLoopBackOff")
	got := gaps(awaitCalls(n, 3, call{method: "StartContainer", pod: "crash-node"}))
	if got[0] < 10*time.Second {
		t.Errorf("the second restart came after %v, want at least 10s", got[0])
	}
}

// TestStartErrors: a container that cannot be started reports the error and is tried again.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	for _, f := range []crisim.Fault{
		{Method: "StartContainer", Pod: "start-node", Error: "no such file", Count: 1},
		{Method: "CreateContainer", Pod: "create-node", Error: "no space", Count: 1},
		{Method: "RunPodSandbox", Pod: "sandbox-node", Error: "no network", Count: 1},
	} {
		if err := n.Runtime.SetFault(f); err != nil {
			t.Fatal(err)
		}
	}
	n.Start()
	for _, name := range []string{"start", "create", "sandbox"} {
		n.Pod(name, plain(name))
	}
	awaitReason(n, "create-node", "CreateContainerError")
	awaitPod(n, "sandbox-node", func(pod v1.Pod) error {
		w := statusOf(t, pod, "main").State.Waiting
		if w == nil || w.Message == "" {
			return fmt.Errorf("the container is %+v", statusOf(t, pod, "main").State)
		}
		return nil
	})
	for _, name := range []string{"start", "create", "sandbox"} {
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
}
