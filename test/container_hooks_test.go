package test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// The next container waits for the previous one's postStart hook. A container whose hook fails is
// stopped and restarted. A preStop hook runs before the stop, which then has the rest of the grace
// period.
func TestContainerHooks(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	quickRestarts(n)
	n.Start()
	n.Pod("good", manifestOf("good", "terminationGracePeriodSeconds: 30\n  containers: "+
		"[{name: first, image: sim.local/app, lifecycle: {postStart: {exec: {command: [\"true\"]}}, "+
		"preStop: {exec: {command: [sh, -c, \"exit 3\"]}}}}, {name: second, image: sim.local/app}]"))
	n.AwaitPhase("good-node", v1.PodRunning)
	inOrder(t, n,
		call{method: "StartContainer", pod: "good-node", container: "first"},
		call{method: "ExecSync", pod: "good-node", container: "first"},
		call{method: "StartContainer", pod: "good-node", container: "second"},
	)
	n.RemovePod("good")
	n.AwaitGone("good-node")
	awaitSaid(n, "FailedPreStopHook", "PreStopHook failed")

	n.Pod("bad", manifestOf("bad", "containers: [{name: main, image: sim.local/app, lifecycle: "+
		"{postStart: {exec: {command: [\"false\"]}}}}]"))
	awaitContainer(n, "bad-node", "main", func(c crisim.Container) error {
		if c.Subject.Attempt < 2 {
			return fmt.Errorf("attempt %d", c.Subject.Attempt)
		}
		return nil
	})
	awaitSaid(n, "FailedPostStartHook", "PostStartHook failed")
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	if c := statusOf(t, pods["bad-node"], "main"); c.Ready || c.State.Running != nil {
		t.Errorf("a container whose hook fails is %+v", c)
	}
}

// A hook that the agent's end interrupted is run by the next agent, before it starts anything else.
func TestHookAfterKill(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("web", manifestOf("web", "containers: [{name: first, image: sim.local/app, lifecycle: "+
		"{postStart: {exec: {command: [sleep, \"3600\"]}}}}, {name: second, image: sim.local/app}]"))
	exec := call{method: "ExecSync", pod: "web-node", container: "first"}
	begun := func(times int) {
		n.Eventually(fmt.Sprintf("the hook has begun %d times", times), func() error {
			if got := len(calls(n, exec)); got != times {
				return fmt.Errorf("it has %d times", got)
			}
			return nil
		})
	}
	begun(1)
	n.Kill()
	n.Start()
	begun(2)
	if got := calls(n, call{method: "StartContainer", pod: "web-node"}); len(got) != 1 {
		t.Errorf("%d containers were started, want one", len(got))
	}
}

// Sidecars end after the containers, in reverse order, and wait only for their own hooks. All hooks
// start as soon as the pod is stopped.
func TestSidecarsEndInTurn(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	sidecar := "{name: %s, image: sim.local/app, restartPolicy: Always, lifecycle: " +
		"{preStop: {exec: {command: [sleep, \"%d\"]}}}}"
	n.Pod("web", manifestOf("web", fmt.Sprintf("terminationGracePeriodSeconds: 60\n  "+
		"initContainers: ["+sidecar+", "+sidecar+"]\n  "+
		"containers: [{name: main, image: sim.local/app}]", "first", 6, "last", 2)))
	n.AwaitPhase("web-node", v1.PodRunning)
	n.RemovePod("web")
	n.AwaitGone("web-node")
	stopped := map[string]crisim.Call{}
	for _, name := range []string{"main", "first", "last"} {
		stopped[name] = only(t, n, call{method: "StopContainer", pod: "web-node", container: name})
	}
	hook := only(t, n, call{method: "ExecSync", pod: "web-node", container: "first"})
	inOrder(t, n,
		call{method: "StopContainer", pod: "web-node", container: "main"},
		call{method: "StopContainer", pod: "web-node", container: "last"},
		call{method: "StopContainer", pod: "web-node", container: "first"},
	)
	if hook.Begin > stopped["last"].Begin || stopped["last"].End > hook.End ||
		hook.End > stopped["first"].Begin {
		t.Errorf("the hook of first was run at %d to %d, the stops at %+v", hook.Begin, hook.End, stopped)
	}
}
