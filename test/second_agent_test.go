package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// A second agent with the root directory of a running one ends with one line that says so. The
// first one keeps its sockets, state and pods.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("own", limited("own", "cpu: 2, memory: 1Gi"))
	n.AwaitPhase("own-node", v1.PodRunning)
	state := filepath.Join(n.Root, "numalet_state")
	before, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}

	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := append([]string{"--config=" + filepath.Join(n.Dir, "config.yaml")}, n.Args...)
	args = append(args, "--read-only-port=0")
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	// Before that it says that --read-only-port is deprecated, and that it waits for the lock.
	if err == nil || !strings.Contains(last, "another numalet runs with root directory "+n.Root) ||
		!strings.Contains(last, "--root-dir") || len(lines) != 3 {
		t.Errorf("the second agent: %v\n%s", err, out)
	}

	socket := "--socket=" + filepath.Join(n.Root, "pod-resources", "kubelet.sock")
	held, err := exec.CommandContext(ctx, binary, "podresources", socket).CombinedOutput()
	if err != nil || !strings.Contains(string(held), "own-node") {
		t.Errorf("the first agent's pod resources: %v\n%s", err, held)
	}
	after, err := os.ReadFile(state)
	if err != nil || string(after) != string(before) {
		t.Errorf("the state was %s\nand is %s (%v)", before, after, err)
	}
}

// Two agents with their own root directories on one runtime leave each other's pods alone, and log
// that there is another one. If one ends for good, the other removes its pods.
func TestTwoAgentsOnOneRuntime(t *testing.T) {
	t.Parallel()
	one, other := harness.New(t), harness.New(t)
	other.Settings["containerRuntimeEndpoint"] = one.Endpoint
	one.Start()
	one.Pod("first", limited("first", "cpu: 2, memory: 1Gi"))
	one.AwaitPhase("first-node", v1.PodRunning)
	since := lastCall(one)
	other.Start()
	other.Pod("second", limited("second", "cpu: 2, memory: 1Gi"))
	other.AwaitPhase("second-node", v1.PodRunning)
	awaitLogged(t, other, "another numalet runs on this container runtime", one.Root)
	awaitLogged(t, one, "another numalet runs on this container runtime", other.Root)
	time.Sleep(5 * time.Second) // they look for undesired pods every 2 s
	for _, c := range one.Runtime.Journal(since) {
		if c.Subject.Pod == "first-node" || strings.HasPrefix(c.Method, "Stop") ||
			strings.HasPrefix(c.Method, "Remove") {
			t.Errorf("the runtime was told: %+v", c)
		}
	}
	one.Kill()
	awaitCalls(one, 1, call{method: "RemovePodSandbox", pod: "first-node"})
	other.AwaitPhase("second-node", v1.PodRunning)
}
