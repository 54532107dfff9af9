package containerd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestLife: how containers end, and what becomes of them and their pods then.
func TestLife(t *testing.T) {
	w := newWorld(t)
	w.Start()
	ends := w.watchEnds()
	for name, test := range map[string]func(*testing.T, world){
		"at once":    testAtOnce,
		"exit codes": testExitCodes,
		"restarts":   testRestarts,
		"init":       testInit,
		"sidecar":    testSidecar,
		"memory":     testOutOfMemory,
		"message":    testMessage,
		"no command": testNoCommand,
		"SIGTERM":    func(t *testing.T, w world) { testTerm(t, w, ends) },
		"SIGKILL":    func(t *testing.T, w world) { testKill(t, w, ends) },
		"logs":       testLogs,
		"sandboxes":  testSandboxes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w.as(t))
		})
	}
}

func never(spec string) string { return "restartPolicy: Never\n  " + spec }

// testAtOnce: containers that exit before anybody can look are not missed.
func testAtOnce(t *testing.T, w world) {
	const pods = 6
	for i := range pods {
		w.create(fmt.Sprintf("brief-%d", i), never(simple(fmt.Sprintf("--exit=%d", i))))
	}
	for i := range pods {
		phase := v1.PodFailed
		if i == 0 {
			phase = v1.PodSucceeded
		}
		pod := w.AwaitPhase(fmt.Sprintf("brief-%d-node", i), phase)
		ended := w.statusOf(pod, "main").State.Terminated
		if ended == nil || ended.ExitCode != int32(i) || ended.StartedAt.IsZero() {
			t.Errorf("pod %s ended as %+v", pod.Name, ended)
		}
	}
}

func testExitCodes(t *testing.T, w world) {
	w.create("codes", never(`
  containers:
  - {name: good, image: IMAGE, args: [--exit=0, --after=300ms]}
  - {name: bad, image: IMAGE, args: [--exit=42, --after=500ms]}`))
	pod := w.AwaitPhase("codes-node", v1.PodFailed)
	good := w.statusOf(pod, "good").State.Terminated
	if good == nil || good.ExitCode != 0 || good.Reason != "Completed" {
		t.Errorf("good ended as %+v", good)
	}
	bad := w.statusOf(pod, "bad").State.Terminated
	if bad == nil || bad.ExitCode != 42 || bad.Reason != "Error" {
		t.Errorf("bad ended as %+v", bad)
	}
}

// testRestarts: Always restarts whatever the exit code, OnFailure only after a failure, the first
// time at once and then after a back-off.
func testRestarts(t *testing.T, w world) {
	w.create("always", simple("--print, --exit=0, --after=100ms"))
	w.create("failure", "restartPolicy: OnFailure\n  "+simple("--exit=7, --after=100ms"))
	w.create("success", "restartPolicy: OnFailure\n  "+simple("--exit=0, --after=100ms"))
	succeeded := w.AwaitPhase("success-node", v1.PodSucceeded)
	if got := w.statusOf(succeeded, "main").RestartCount; got != 0 {
		t.Errorf("a container that succeeded was restarted %d times", got)
	}
	for pod, code := range map[string]int32{"always-node": 0, "failure-node": 7} {
		got := w.awaitContainer(pod, "main", "is in back-off", func(s v1.ContainerStatus) bool {
			return s.RestartCount == 1 && s.State.Waiting != nil &&
				s.State.Waiting.Reason == "CrashLoopBackOff"
		})
		last := got.LastTerminationState.Terminated
		if last == nil || last.ExitCode != code {
			t.Errorf("pod %s: the last end is %+v, want exit code %d", pod, last, code)
		}
	}
	w.awaitContainer("always-node", "main", "is restarted after the back-off",
		func(s v1.ContainerStatus) bool { return s.RestartCount == 2 })
	pods, err := w.Pods()
	if err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		text, err := w.logs(pods["always-node"], "main", life)
		if err == nil && !strings.Contains(text, `"cpus"`) {
			t.Errorf("log of life %d is %q", life, text)
		}
		if err != nil && life > 0 { // of dead containers the newest is kept
			t.Error(err)
		}
	}
}

func testInit(t *testing.T, w world) {
	w.create("init", never(`
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - {name: first, image: IMAGE, args: [--out=/work/first, --exit=0],
     volumeMounts: [{name: work, mountPath: /work}]}
  - {name: second, image: IMAGE, args: [--out=/work/first/no, --exit=0],
     volumeMounts: [{name: work, mountPath: /work}]}
  containers:
  - {name: main, image: IMAGE, args: [--exit=0]}`))
	pod := w.AwaitPhase("init-node", v1.PodFailed) // second cannot write below what first made
	if first := w.statusOf(pod, "first").State.Terminated; first == nil || first.ExitCode != 0 {
		t.Errorf("first ended as %+v", first)
	}
	if second := w.statusOf(pod, "second").State.Terminated; second == nil || second.ExitCode != 1 {
		t.Errorf("second ended as %+v, want exit code 1 for a file below a file", second)
	}
	if main := w.statusOf(pod, "main"); main.State.Waiting == nil {
		t.Errorf("main is %+v, want one that waits", main.State)
	}
}

// testSidecar: it runs before and beside the others, and a pod completes without it.
func testSidecar(t *testing.T, w world) {
	w.create("sidecar", never(`
  initContainers:
  - {name: side, image: IMAGE, args: [--print], restartPolicy: Always}
  - {name: prepare, image: IMAGE, args: [--exit=0, --after=100ms]}
  containers:
  - {name: main, image: IMAGE, args: [--exit=0, --after=300ms]}`))
	pod := w.AwaitPhase("sidecar-node", v1.PodSucceeded)
	side := w.statusOf(pod, "side")
	if side.State.Terminated == nil || side.State.Terminated.ExitCode != 0 ||
		side.RestartCount != 0 {
		t.Errorf("the sidecar is %+v", side)
	}
	w.report(pod, "side")
}

// testOutOfMemory: containerd says so if the kernel's event comes before the exit, which on cgroup v1 a
// busy machine does not do each time.
func testOutOfMemory(t *testing.T, w world) {
	var ended *v1.ContainerStateTerminated
	for round := range 5 {
		name := fmt.Sprintf("memory%d", round)
		w.create(name, never(simple("--allocate=256", "resources: {limits: {memory: 48Mi}}")))
		ended = w.statusOf(w.AwaitPhase(name+"-node", v1.PodFailed), "main").State.Terminated
		if ended == nil || ended.ExitCode != 137 {
			break
		}
		if ended.Reason == "OOMKilled" {
			return
		}
	}
	t.Errorf("it ended as %+v, want OOMKilled", ended)
}

func testMessage(t *testing.T, w world) {
	w.create("message", never(simple("--message=out of paper, --exit=3")))
	pod := w.AwaitPhase("message-node", v1.PodFailed)
	ended := w.statusOf(pod, "main").State.Terminated
	if ended == nil || ended.Message != "out of paper" {
		t.Errorf("it ended as %+v, want its message", ended)
	}
}

// testNoCommand: a container that cannot be started says so and does not disturb the other one.
func testNoCommand(t *testing.T, w world) {
	w.create("command", `
  containers:
  - {name: broken, image: IMAGE, command: [/none]}
  - {name: fine, image: IMAGE}`)
	w.awaitContainer("command-node", "fine", "runs", func(s v1.ContainerStatus) bool {
		return s.State.Running != nil
	})
	w.awaitContainer("command-node", "broken", "says why", func(s v1.ContainerStatus) bool {
		why := ""
		if s.State.Waiting != nil {
			why = s.State.Waiting.Message
		}
		if last := s.LastTerminationState.Terminated; last != nil {
			why += last.Message
		}
		return strings.Contains(why, "/none")
	})
}

// testTerm: a container that ends on SIGTERM is not killed.
func testTerm(_ *testing.T, w world, ends *ends) {
	pod := w.run("polite", "terminationGracePeriodSeconds: 30\n  "+simple("--print"))
	w.report(pod, "main") // from then on it takes the signal
	w.remove("polite")
	if got := ends.await(w, "polite-node/main"); got.code != 0 {
		w.t.Errorf("exit code %d, want 0 from the program itself", got.code)
	}
}

// testKill: one that does not is killed when the grace period is over, and not before.
func testKill(t *testing.T, w world, ends *ends) {
	const grace = 3 * time.Second
	pod := w.run("stubborn",
		fmt.Sprintf("terminationGracePeriodSeconds: %d\n  ", int(grace.Seconds()))+
			simple("--print, --ignore-term"))
	w.report(pod, "main") // signals are ignored from before this on
	removed := time.Now()
	w.remove("stubborn")
	got := ends.await(w, "stubborn-node/main")
	if got.code != 137 {
		t.Errorf("exit code %d, want 137", got.code)
	}
	if after := got.at.Sub(removed); after < grace {
		t.Errorf("killed %v after the pod was removed; the grace period is %v", after, grace)
	}
}

// testLogs: a container's output is in the kubelet's place, in the format of CRI.
func testLogs(t *testing.T, w world) {
	pod := w.run("logs", simple("--print"))
	w.report(pod, "main")
	text, err := w.logs(pod, "main", 0)
	if err != nil || strings.Count(text, "\n") != 1 {
		t.Errorf("log %q, %v: want the one line it wrote", text, err)
	}
}
