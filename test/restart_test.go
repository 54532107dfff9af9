package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
)

// eager makes reconciliation frequent, so that whatever an agent would change it changes soon.
func eager(n *harness.Node) {
	n.Settings["cpuManagerReconcilePeriod"] = "100ms"
	n.Settings["syncFrequency"] = "1s"
	n.Settings["fileCheckFrequency"] = "200ms"
}

// crowd writes one pod of each kind and waits until each has its final phase.
func crowd(t testing.TB, n *harness.Node) {
	t.Helper()
	n.Pod("own", limited("own", "cpu: 4, memory: 1Gi, example.com/gpu: 2"))
	n.Pod("shared", plain("shared"))
	n.Pod("app", manifestOf("app", fmt.Sprintf(withSidecar, "Always"), "init: exit=0 after=1ms"))
	n.Pod("done", manifestOf("done",
		"restartPolicy: Never\n  containers: [{name: main, image: sim.local/app}]",
		"main: exit=0 after=1ms"))
	n.Pod("failed", manifestOf("failed",
		"restartPolicy: Never\n  containers: [{name: main, image: sim.local/app}]",
		"main: exit=4 after=1ms"))
	for name, phase := range crowdPhases {
		n.AwaitPhase(name, phase)
	}
}

// crowdPhases holds the pods' final phases.
var crowdPhases = map[string]v1.PodPhase{
	"own-node": v1.PodRunning, "shared-node": v1.PodRunning, "app-node": v1.PodRunning,
	"done-node": v1.PodSucceeded, "failed-node": v1.PodFailed,
}

// quiet waits until the agent makes no more changes in the runtime: pods that have ended may still
// be being cleaned up.
func quiet(n *harness.Node) {
	n.Eventually("the sandboxes of ended pods are stopped", func() error {
		for _, sb := range n.Runtime.State().Sandboxes {
			if ended := crowdPhases[sb.Pod] != v1.PodRunning; ended == sb.Ready {
				return fmt.Errorf("sandbox of %s: ready is %t", sb.Pod, sb.Ready)
			}
		}
		for _, c := range n.Runtime.Journal(0) {
			if c.End == 0 {
				return fmt.Errorf("call %+v is in flight", c)
			}
		}
		return nil
	})
}

// placements returns the rows by pod/container, without the health of devices, which is unknown
// while their plugin is away.
func placements(t testing.TB, n *harness.Node) map[string]assigned.Row {
	t.Helper()
	rows, err := n.Placements()
	if err != nil {
		t.Fatal(err)
	}
	for key, row := range rows {
		row.DeviceHealth = nil
		rows[key] = row
	}
	return rows
}

// restartCounts returns the restart count of each container by pod/container.
func restartCounts(t testing.TB, n *harness.Node) map[string]int32 {
	t.Helper()
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int32{}
	for name, pod := range pods {
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses,
			pod.Status.ContainerStatuses) {
			out[name+"/"+s.Name] = s.RestartCount
		}
	}
	return out
}

// untouched checks that nothing was done after the journal's entry since, except for the pod but, a
// new pod that shows that the agent works.
func untouched(t testing.TB, n *harness.Node, since uint64, but string) {
	t.Helper()
	for _, c := range n.Runtime.Journal(since) {
		if c.Subject.Pod != but {
			t.Errorf("the runtime was told after the restart: %+v", c)
		}
	}
}

func lastCall(n *harness.Node) uint64 {
	var last uint64
	for _, c := range n.Runtime.Journal(0) {
		last = max(last, c.Begin)
	}
	return last
}

func TestRestartIsAdoption(t *testing.T) {
	tests := map[string]struct {
		stop       func(*testing.T, *harness.Node)
		pluginAway bool
	}{
		"killed": {stop: func(_ *testing.T, n *harness.Node) { n.Kill() }},
		"stopped": {stop: func(t *testing.T, n *harness.Node) {
			if err := n.Stop(); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
		}},
		"killed, the plugin away": {
			stop: func(_ *testing.T, n *harness.Node) { n.Kill() }, pluginAway: true,
		},
		"killed, the state file gone": {stop: func(t *testing.T, n *harness.Node) {
			n.Kill()
			if err := os.Remove(filepath.Join(n.Root, store.FileName)); err != nil {
				t.Fatal(err)
			}
		}},
		"killed, the state file damaged, the plugin away": {
			stop: func(t *testing.T, n *harness.Node) {
				n.Kill()
				if err := os.Truncate(filepath.Join(n.Root, store.FileName), 100); err != nil {
					t.Fatal(err)
				}
			}, pluginAway: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			eager(n)
			n.Start()
			plugin, stopPlugin := n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-3")
			crowd(t, n)
			quiet(n)
			before, restarts := placements(t, n), restartCounts(t, n)
			calledBefore := allocations(t, plugin)
			tc.stop(t, n)
			if tc.pluginAway {
				stopPlugin()
			}
			since := lastCall(n)
			if got := len(n.Runtime.State().Running()); got != 4 {
				t.Errorf("%d containers run without the agent, want 4", got)
			}

			n.Start()
			for name, phase := range crowdPhases {
				n.AwaitPhase(name, phase)
			}
			// The agent works: a pod comes and goes while several reconciliation periods pass.
			n.Pod("new", plain("new"))
			n.AwaitPhase("new-node", v1.PodRunning)
			n.RemovePod("new")
			n.AwaitGone("new-node")
			untouched(t, n, since, "new-node")
			if diff := cmp.Diff(restarts, restartCounts(t, n)); diff != "" {
				t.Errorf("restart counts (-before +after):\n%s", diff)
			}
			after := placements(t, n)
			for key, row := range before {
				got := after[key]
				if diff := cmp.Diff(row, got); diff != "" {
					t.Errorf("placement of %s (-before +after):\n%s", key, diff)
				}
			}
			if tc.pluginAway {
				return
			}
			if diff := cmp.Diff(calledBefore, allocations(t, plugin)); diff != "" {
				t.Errorf("Allocate calls (-before +after):\n%s", diff)
			}
		})
	}
}

// allocations counts the calls with which a plugin was asked for devices.
func allocations(t testing.TB, plugin *pluginsim.Client) [2]int {
	t.Helper()
	state, err := plugin.State(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return [2]int{state.Calls[pluginsim.Allocate], state.Calls[pluginsim.Preferred]}
}

// TestChangesWhileAway: an agent acts on what happened to manifests and containers while no agent
// ran.
func TestChangesWhileAway(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	eager(n)
	n.Start()
	n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-3")
	crowd(t, n)
	n.Pod("crash", plain("crash"))
	n.AwaitPhase("crash-node", v1.PodRunning)
	n.Kill()

	since := lastCall(n)
	n.RemovePod("own")
	n.RemovePod("failed")
	n.Pod("late", limited("late", "cpu: 2, memory: 1Gi"))
	if err := n.Runtime.Exit("crash-node/main", crisim.Exit{Code: 9}); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.AwaitPhase("late-node", v1.PodRunning)
	n.AwaitGone("own-node")
	n.Eventually("nothing is left of the pods whose manifests went", func() error {
		left := n.Runtime.State()
		for _, sb := range left.Sandboxes {
			if sb.Pod == "own-node" || sb.Pod == "failed-node" {
				return fmt.Errorf("there is a sandbox of %s", sb.Pod)
			}
		}
		return nil
	})
	awaitPod(n, "crash-node", func(pod v1.Pod) error {
		s := statusOf(t, pod, "main")
		last := s.LastTerminationState.Terminated
		if s.State.Running == nil || last == nil || last.ExitCode != 9 || s.RestartCount != 1 {
			return fmt.Errorf("the container is %+v", s)
		}
		return nil
	})
	// Completed pods are not run again.
	n.AwaitPhase("done-node", v1.PodSucceeded)
	for _, c := range n.Runtime.Journal(since) {
		if c.Subject.Pod == "done-node" || c.Subject.Pod == "shared-node" && c.CPUs == "" {
			t.Errorf("a pod that nothing happened to was touched: %+v", c)
		}
	}
	// What the removed pod held is free again.
	n.Pod("again", limited("again", "cpu: 4, memory: 1Gi, example.com/gpu: 8"))
	n.AwaitPhase("again-node", v1.PodRunning)
}

// TestEndedMeanwhile: if a container of a Never pod ends while no agent runs, it stays ended.
func TestEndedMeanwhile(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("job", manifestOf("job",
		"restartPolicy: Never\n  containers: [{name: main, image: sim.local/app}]"))
	n.AwaitPhase("job-node", v1.PodRunning)
	n.Kill()
	if err := n.Runtime.Exit("job-node/main", crisim.Exit{Code: 2, Message: "bye"}); err != nil {
		t.Fatal(err)
	}
	n.Start()
	for range 2 { // the second time for an agent that starts when all is over
		pod := n.AwaitPhase("job-node", v1.PodFailed)
		term := statusOf(t, pod, "main").State.Terminated
		if term == nil || term.ExitCode != 2 || term.Message != "bye" {
			t.Errorf("the end is %+v", term)
		}
		quietJob(n)
		n.Kill()
		n.Start()
	}
	only(t, n, call{method: "CreateContainer", pod: "job-node"})
}

func quietJob(n *harness.Node) {
	n.Eventually("the sandbox is stopped", func() error {
		for _, sb := range n.Runtime.State().Sandboxes {
			if sb.Ready {
				return fmt.Errorf("that of %s is not", sb.Pod)
			}
		}
		return nil
	})
}

// TestRuntimeGoesAway: the agent concludes nothing from a runtime that does not answer.
func TestRuntimeGoesAway(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["runtimeRequestTimeout"] = "1s"
	n.Start()
	n.Pod("app", plain("app"))
	n.AwaitPhase("app-node", v1.PodRunning)
	since := lastCall(n)
	if err := n.Runtime.SetFault(crisim.Fault{Error: "down", Code: "Unavailable"}); err != nil {
		t.Fatal(err)
	}
	n.Runtime.DropEvents()
	n.Pod("late", plain("late"))
	awaitLogged(t, n, "late-node", "down")
	statuses := n.AwaitPhase("app-node", v1.PodRunning).Status.ContainerStatuses
	if statuses[0].RestartCount != 0 {
		t.Errorf("status of the pod meanwhile: %+v", statuses)
	}
	n.Runtime.ClearFaults()
	n.AwaitPhase("late-node", v1.PodRunning)
	for _, c := range n.Runtime.Journal(since) {
		if c.Subject.Pod == "app-node" {
			t.Errorf("the pod that ran was touched: %+v", c)
		}
	}
}
