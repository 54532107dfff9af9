package test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// quickRestarts shortens the restart back-off.
func quickRestarts(n *harness.Node) {
	n.Settings["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "1s"}
}

func TestPodComesAndGoes(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("web", plain("web"))
	pod := n.AwaitPhase("web-node", v1.PodRunning)

	if got := pod.Status.ContainerStatuses; len(got) != 1 || !got[0].Ready ||
		got[0].State.Running == nil || got[0].RestartCount != 0 {
		t.Errorf("container statuses of a running pod: %+v", got)
	}
	if pod.Status.PodIP == "" || pod.Status.HostIP == "" || pod.Status.StartTime == nil ||
		pod.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("status of a running pod: %+v", pod.Status)
	}
	main := container(t, n, "web-node", "main")
	want := "numalet-sim://" + main.Subject.ID
	if got := statusOf(t, pod, "main").ContainerID; got != want {
		t.Errorf("the container's id is %q, want %q", got, want)
	}
	podDir := filepath.Join(n.Root, "pods", string(pod.UID))
	logDir := filepath.Join(n.Dir, "logs", "default_web-node_"+string(pod.UID))
	for _, sb := range n.Runtime.State().Sandboxes {
		if sb.Config.GetLogDirectory() != logDir {
			t.Errorf("log directory %q, want %q", sb.Config.GetLogDirectory(), logDir)
		}
	}

	n.RemovePod("web")
	n.AwaitGone("web-node")
	inOrder(t, n,
		call{method: "RunPodSandbox", pod: "web-node"},
		call{method: "CreateContainer", pod: "web-node"},
		call{method: "StartContainer", pod: "web-node"},
		call{method: "StopContainer", pod: "web-node"},
	)
	if left := n.Runtime.State(); len(left.Containers)+len(left.Sandboxes) != 0 {
		t.Errorf("the runtime still has %+v", left)
	}
	if got := calls(n, call{method: "StopPodSandbox"}); len(got) == 0 {
		t.Error("the sandbox was not stopped before it was removed")
	}
	absent(t, podDir)
	absent(t, logDir)
}

func TestContainersStopWithSIGTERM(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	const spec = `terminationGracePeriodSeconds: %d
  containers: [{name: main, image: sim.local/app}]`
	n.Pod("polite", manifestOf("polite", fmt.Sprintf(spec, 3600), "main: term=3 term-after=300ms"))
	n.Pod("stubborn", manifestOf("stubborn", fmt.Sprintf(spec, 2), "main: term=ignore"))
	n.AwaitPhase("polite-node", v1.PodRunning)
	n.AwaitPhase("stubborn-node", v1.PodRunning)
	n.RemovePod("polite")
	n.RemovePod("stubborn")
	n.AwaitGone("polite-node")
	n.AwaitGone("stubborn-node")
	stop := only(t, n, call{method: "StopContainer", pod: "stubborn-node"})
	next := only(t, n, call{method: "RemoveContainer", pod: "stubborn-node"})
	if took := next.At.Sub(stop.At).Seconds(); took < 2 {
		t.Errorf("a container that ignores SIGTERM was killed after %.1f s of its 2 s", took)
	}
}

func TestInitContainersRunInOrder(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("app", manifestOf("app", `initContainers:
  - {name: first, image: sim.local/app}
  - {name: second, image: sim.local/app}
  containers:
  - {name: main, image: sim.local/app}
  - {name: other, image: sim.local/app}`,
		"first: exit=0 after=100ms", "second: exit=0 after=1ms"))
	pod := awaitPod(n, "app-node", bothReady)
	for _, name := range []string{"first", "second"} {
		s := statusOf(t, pod, name)
		if s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" || !s.Ready {
			t.Errorf("init container %s: %+v", name, s)
		}
	}
	first, second := container(t, n, "app-node", "first"), container(t, n, "app-node", "second")
	main := container(t, n, "app-node", "main")
	if first.FinishedAt.After(second.CreatedAt) || second.FinishedAt.After(main.CreatedAt) {
		t.Errorf("first ended %v, second ran %v to %v, main was created %v", first.FinishedAt,
			second.CreatedAt, second.FinishedAt, main.CreatedAt)
	}
}

func bothReady(pod v1.Pod) error {
	for _, s := range pod.Status.ContainerStatuses {
		if !s.Ready {
			return fmt.Errorf("container %s is not ready: %+v", s.Name, s.State)
		}
	}
	return nil
}

func TestFailedInitContainer(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	quickRestarts(n)
	n.Start()
	const spec = `restartPolicy: %s
  initContainers: [{name: init, image: sim.local/app}]
  containers: [{name: main, image: sim.local/app}]`
	n.Pod("never", manifestOf("never", fmt.Sprintf(spec, "Never"), "init: exit=5 after=1ms"))
	n.Pod("again",
		manifestOf("again", fmt.Sprintf(spec, "Always"), "init: exit=5 after=1ms attempts=2"))

	never := n.AwaitPhase("never-node", v1.PodFailed)
	if term := statusOf(t, never, "init").State.Terminated; term == nil || term.ExitCode != 5 {
		t.Errorf("the failed init container: %+v", statusOf(t, never, "init"))
	}
	if got := calls(n, call{"CreateContainer", "never-node", "main"}); len(got) != 0 {
		t.Errorf("main was created although an init container failed: %+v", got)
	}
	// The third attempt goes on running, so the pod stays in initialization.
	awaitContainer(n, "again-node", "init", func(c crisim.Container) error {
		if c.Subject.Attempt < 2 || !c.Running() {
			return fmt.Errorf("attempt %d is %s", c.Subject.Attempt, c.State)
		}
		return nil
	})
	if err := n.Runtime.Exit("again-node/init", crisim.Exit{}); err != nil {
		t.Fatal(err)
	}
	again := n.AwaitPhase("again-node", v1.PodRunning)
	if got := statusOf(t, again, "init").RestartCount; got != 2 {
		t.Errorf("the init container restarted %d times, want 2", got)
	}
}

const withSidecar = `restartPolicy: %s
  initContainers:
  - {name: side, image: sim.local/app, restartPolicy: Always}
  - {name: init, image: sim.local/app}
  containers:
  - {name: main, image: sim.local/app}`

func TestSidecarStartsBeforeAndEndsAfter(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("app", manifestOf("app", fmt.Sprintf(withSidecar, "Always"),
		"init: exit=0 after=1ms", "main: term=0 term-after=200ms"))
	n.AwaitPhase("app-node", v1.PodRunning)
	inOrder(t, n,
		call{"StartContainer", "app-node", "side"},
		call{"CreateContainer", "app-node", "init"},
		call{"CreateContainer", "app-node", "main"},
	)
	n.RemovePod("app")
	n.AwaitGone("app-node")
	inOrder(t, n, call{"StopContainer", "app-node", "main"},
		call{"StopContainer", "app-node", "side"})
}

func TestSidecarIsRestarted(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	quickRestarts(n)
	n.Start()
	n.Pod("app", manifestOf("app", fmt.Sprintf(withSidecar, "Never"), "init: exit=0 after=1ms"))
	n.AwaitPhase("app-node", v1.PodRunning)
	if err := n.Runtime.Exit("app-node/side", crisim.Exit{Code: 1}); err != nil {
		t.Fatal(err)
	}
	awaitPod(n, "app-node", func(pod v1.Pod) error {
		s := statusOf(t, pod, "side")
		if s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("the sidecar is %+v", s)
		}
		return nil
	})
	only(t, n, call{"CreateContainer", "app-node", "main"})
	only(t, n, call{"CreateContainer", "app-node", "init"})
}

func TestSidecarDoesNotKeepAPodRunning(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("job", manifestOf("job", fmt.Sprintf(withSidecar, "Never"),
		"init: exit=0 after=1ms", "main: exit=0 after=50ms", "side: term=0"))
	n.AwaitPhase("job-node", v1.PodSucceeded)
	main, side := container(t, n, "job-node", "main"), container(t, n, "job-node", "side")
	if side.Running() || side.FinishedAt.Before(main.FinishedAt) {
		t.Errorf("main ended %v, the sidecar is %s since %v", main.FinishedAt, side.State,
			side.FinishedAt)
	}
}

func TestRestartPolicies(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	quickRestarts(n)
	n.Start()
	tests := []struct {
		policy string
		code   int32
		phase  v1.PodPhase
		again  bool
	}{
		{"Always", 0, v1.PodRunning, true},
		{"Always", 3, v1.PodRunning, true},
		{"OnFailure", 0, v1.PodSucceeded, false},
		{"OnFailure", 3, v1.PodRunning, true},
		{"Never", 0, v1.PodSucceeded, false},
		{"Never", 3, v1.PodFailed, false},
	}
	name := func(i int) string { return fmt.Sprintf("p%d", i) }
	for i, tc := range tests {
		n.Pod(name(i), manifestOf(name(i), fmt.Sprintf(
			"restartPolicy: %s\n  containers: [{name: main, image: sim.local/app}]", tc.policy),
			fmt.Sprintf("main: exit=%d after=1ms attempts=1 message=bye", tc.code)))
	}
	for i, tc := range tests {
		pod := awaitPod(n, name(i)+"-node", func(pod v1.Pod) error {
			s := statusOf(t, pod, "main")
			if again := s.State.Running != nil &&
				s.RestartCount > 0; pod.Status.Phase != tc.phase ||
				again != tc.again {
				return fmt.Errorf("%s with exit code %d: phase %s, container %+v", tc.policy,
					tc.code, pod.Status.Phase, s)
			}
			return nil
		})
		s := statusOf(t, pod, "main")
		term := s.State.Terminated
		if tc.again {
			term = s.LastTerminationState.Terminated
		}
		reason := "Error"
		if tc.code == 0 {
			reason = "Completed"
		}
		if term == nil || term.ExitCode != tc.code || term.Reason != reason ||
			term.Message != "bye" {
			t.Errorf("%s with exit code %d: the end was recorded as %+v", tc.policy, tc.code, term)
		}
	}
	for i, tc := range tests {
		want := 1
		if tc.again {
			want = 2
		}
		started := calls(n, call{method: "StartContainer", pod: name(i) + "-node"})
		if got := len(started); got != want {
			t.Errorf("%s with exit code %d: started %d times, want %d",
				tc.policy, tc.code, got, want)
		}
	}
}

// TestShortLives: a container that ends before the agent relists is not missed, also if the runtime
// sends no events.
func TestShortLives(t *testing.T) {
	for _, mode := range []crisim.EventMode{crisim.EventsOn, crisim.EventsSilent, crisim.EventsUnimplemented} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			if err := n.Runtime.SetEvents(mode); err != nil {
				t.Fatal(err)
			}
			n.Start()
			const pods = 10
			for i := range pods {
				name := fmt.Sprintf("p%d", i)
				n.Pod(name, manifestOf(name,
					"restartPolicy: Never\n  containers: [{name: main, image: sim.local/app}]",
					fmt.Sprintf("main: exit=%d after=1ms", i)))
			}
			for i := range pods {
				phase := v1.PodFailed
				if i == 0 {
					phase = v1.PodSucceeded
				}
				pod := n.AwaitPhase(fmt.Sprintf("p%d-node", i), phase)
				term := statusOf(t, pod, "main").State.Terminated
				if term == nil || term.ExitCode != int32(i) {
					t.Errorf("pod %s ended with %+v, want exit code %d", pod.Name, term, i)
				}
			}
		})
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	fault := crisim.Fault{Method: "PullImage", Hang: true}
	if err := n.Runtime.SetFault(fault); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Pod("app", manifestOf("app",
		"restartPolicy: Never\n  containers: [{name: main, image: sim.local/app}]"))
	awaitCalls(n, 1, call{method: "PullImage"})
	check := func(what string, phase v1.PodPhase, want map[v1.PodConditionType]string) {
		t.Helper()
		awaitPod(n, "app-node", func(pod v1.Pod) error {
			if diff := cmp.Diff(want, conditionsOf(pod)); diff != "" || pod.Status.Phase != phase {
				return fmt.Errorf("%s: %s, conditions (-want +got):\n%s",
					what, pod.Status.Phase, diff)
			}
			return nil
		})
	}
	check("while the image is pulled", v1.PodPending, map[v1.PodConditionType]string{
		v1.PodScheduled: "True", v1.PodInitialized: "True", v1.PodReadyToStartContainers: "True",
		v1.ContainersReady: "False ContainersNotReady", v1.PodReady: "False ContainersNotReady",
	})
	n.Runtime.ClearFaults()
	check("running", v1.PodRunning, map[v1.PodConditionType]string{
		v1.PodScheduled: "True", v1.PodInitialized: "True", v1.PodReadyToStartContainers: "True",
		v1.ContainersReady: "True", v1.PodReady: "True",
	})
	if err := n.Runtime.Exit("app-node/main", crisim.Exit{}); err != nil {
		t.Fatal(err)
	}
	check("at the end", v1.PodSucceeded, map[v1.PodConditionType]string{
		v1.PodScheduled: "True", v1.PodInitialized: "True PodCompleted",
		v1.PodReadyToStartContainers: "False PodSandboxNotReady",
		v1.ContainersReady:           "False PodCompleted", v1.PodReady: "False PodCompleted",
	})
}
