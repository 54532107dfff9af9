// Package harness drives the built numalet binary through its files and sockets, as users do.
package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/internal/child"
	"github.com/numalet/numalet/internal/files"
)

// Node is an agent with its own directory, runtime and device plugins.
type Node struct {
	t testing.TB
	// Dir holds everything: Manifests, Root, the sockets, the log.
	Dir, Manifests, Root string
	// Endpoint is the runtime's CRI socket.
	Endpoint string
	// Settings are fields of the KubeletConfiguration. Each Start writes them, so change them before
	// it.
	Settings map[string]any
	// Args are further flags of the agent. Program is the command that gets them; if it is empty,
	// numalet, otherwise a program that takes the kubelet's flags.
	Args, Program []string
	// Runtime is the simulated runtime in this process; it is nil if the test brought its own.
	Runtime *crisim.Server

	readOnlyPort
	process
}

// process is the agent's.
type process struct {
	agent *child.Server // nil: it was not started, or has ended
}

// New makes a node with a simulated runtime on the machine "playground". Only the runtime runs yet.
// Everything is stopped at the end of the test.
func New(t testing.TB) *Node {
	t.Helper()
	return NewWith(t, crisim.Config{})
}

// NewWith is New with a configuration for the runtime.
func NewWith(t testing.TB, runtime crisim.Config) *Node {
	t.Helper()
	n := NewOn(t, "")
	runtime.Listen = "unix://" + filepath.Join(n.Dir, "cri.sock")
	n.Runtime = simtest.Start(t, runtime)
	t.Cleanup(n.Kill) // before the runtime ends
	n.Endpoint = n.Runtime.Endpoint()
	n.Settings["containerRuntimeEndpoint"] = n.Endpoint
	n.Args = append(n.Args, "--topology-from=fixture:playground")
	return n
}

// NewOn makes a node on a runtime that the test has started.
func NewOn(t testing.TB, endpoint string) *Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "nl-")
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		t: t, Dir: dir, Manifests: filepath.Join(dir, "manifests"),
		Root:     filepath.Join(dir, "root"),
		Endpoint: endpoint, readOnlyPort: readOnlyPort(FreePort(t)),
	}
	if err := os.Mkdir(n.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Settings = map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": n.Manifests, "containerRuntimeEndpoint": endpoint,
		"podLogsDir":       filepath.Join(dir, "logs"),
		"cpuManagerPolicy": "static", "topologyManagerPolicy": "best-effort",
		"systemReserved":         map[string]string{"cpu": "1"},
		"enforceNodeAllocatable": []string{"none"}, "cgroupsPerQOS": false,
		"failSwapOn": false, "failCgroupV1": false, "makeIPTablesUtilChains": false,
		// How full the machine's disk is does not matter to tests.
		"imageGCHighThresholdPercent": 100,
		"evictionHard":                map[string]string{"memory.available": "100Mi"},
		"healthzPort":                 0, "readOnlyPort": n.readOnlyPort, "address": "127.0.0.1",
	}
	n.Args = []string{"--root-dir=" + n.Root, "--hostname-override=node", "-v=4"}
	t.Cleanup(func() {
		n.Kill()
		if found := races(dir); found != "" {
			t.Errorf("the race detector found this in the agent or a plugin:\n%s", found)
		}
		// Volumes of pods that had not ended may still be mounted there.
		if err := containerd.UnmountBelow(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("files are kept in %s; the end of the log:\n%s", dir, n.LogTail(60))
			return
		}
		os.RemoveAll(dir)
	})
	return n
}

// taken holds the ports that FreePort has returned: their users may not listen yet.
var taken sync.Map

// FreePort returns a free port below those that Linux assigns by itself (ip_local_port_range), so
// that no connection takes it while the agent restarts, and above those that a configuration has by
// default (10248 to 10256).
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 11_000 + rand.IntN(21_000)
		if _, is := taken.LoadOrStore(port, true); is {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no port is free")
	return 0
}

// As returns the node for a subtest: waits that fail then fail t. Start and stop the agent through
// the original.
func (n *Node) As(t testing.TB) *Node {
	as := *n
	as.t = t
	return &as
}

// Start starts the agent and waits until it answers.
func (n *Node) Start() {
	n.t.Helper()
	n.StartOnly()
	n.Eventually("the agent answers", func() error {
		if exited, how := n.Exited(); exited {
			n.t.Fatalf("the agent ended at once: %v\n%s", how, n.LogTail(20))
		}
		_, err := n.get("/healthz")
		return err
	})
}

// StartOnly starts the agent and does not wait.
func (n *Node) StartOnly() {
	n.t.Helper()
	raw, err := yaml.Marshal(n.Settings)
	if err != nil {
		n.t.Fatal(err)
	}
	config := filepath.Join(n.Dir, "config.yaml")
	if err := os.WriteFile(config, raw, 0o644); err != nil {
		n.t.Fatal(err)
	}
	n.agent = n.start("log", n.Program, append([]string{"--config=" + config}, n.Args...)...)
}

// start starts a program, by default numalet, with a log in Dir. It ends with the test's process.
func (n *Node) start(log string, program []string, args ...string) *child.Server {
	n.t.Helper()
	if len(program) == 0 {
		binary, err := Binary()
		if err != nil {
			n.t.Fatal(err)
		}
		program = []string{binary}
	}
	s := &child.Server{
		Program: program[0], Args: slices.Concat(program[1:], args), Env: raceOptions(n.Dir),
		Log: filepath.Join(n.Dir, log),
	}
	if err := s.Start(); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// Exited reports whether the started agent has ended, and how.
func (p *process) Exited() (exited bool, how error) {
	if p.agent == nil {
		return false, nil
	}
	select {
	case <-p.agent.Exited():
		return true, p.agent.How()
	default:
		return false, nil
	}
}

// Kill kills the agent with SIGKILL and waits for its end.
func (p *process) Kill() {
	if p.agent != nil {
		p.agent.Kill()
		p.agent = nil
	}
}

// PID returns the agent's process id.
func (p *process) PID() int { return p.agent.PID() }

// Stop stops the agent with SIGTERM and returns how it exited.
func (n *Node) Stop() error {
	n.t.Helper()
	if err := n.agent.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	return n.end("SIGTERM")
}

// AwaitKilled waits until the agent has died of a signal that the test caused.
func (n *Node) AwaitKilled() {
	n.t.Helper()
	_ = n.end("what was to kill it") // the result only says which signal
}

// Stacks ends the agent, if it runs, and returns its log with the stacks of all its goroutines.
func (n *Node) Stacks() string {
	n.t.Helper()
	if n.agent == nil {
		return ""
	}
	_ = n.agent.Signal(syscall.SIGQUIT) // it may have ended already
	n.AwaitKilled()
	return n.LogTail(10_000)
}

func (n *Node) end(after string) error {
	n.t.Helper()
	select {
	case <-n.agent.Exited():
		how := n.agent.How()
		n.agent = nil
		return how
	case <-time.After(Patience):
		n.t.Fatalf("the agent has not ended within %v of %s", Patience, after)
		return nil
	}
}

// Pod writes a manifest to the file name.yaml, in one step as editors do.
func (n *Node) Pod(name, manifest string) {
	n.t.Helper()
	tmp := filepath.Join(n.Dir, name+".tmp")
	if err := os.WriteFile(tmp, []byte(manifest), 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(n.Manifests, name+".yaml")); err != nil {
		n.t.Fatal(err)
	}
}

// RemovePod removes the manifest name.yaml.
func (n *Node) RemovePod(name string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.Manifests, name+".yaml")); err != nil {
		n.t.Fatal(err)
	}
}

// Eventually waits until check returns nil, and fails the test with its last error.
func (n *Node) Eventually(what string, check func() error) {
	n.t.Helper()
	Eventually(n.t, what, check)
}

// Eventually waits until check returns nil, and fails the test with its last error.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s: %v", Patience, what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// AwaitPhase waits until the pod has the phase.
func (n *Node) AwaitPhase(pod string, phase v1.PodPhase) v1.Pod {
	n.t.Helper()
	var got v1.Pod
	n.Eventually(fmt.Sprintf("pod %s is %s", pod, phase), func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		var ok bool
		if got, ok = pods[pod]; !ok {
			return fmt.Errorf("there is no such pod")
		}
		if got.Status.Phase != phase {
			s := got.Status
			return fmt.Errorf("it is %s: %s %s", s.Phase, s.Reason, s.Message)
		}
		return nil
	})
	return got
}

// AwaitGone waits until the node has no pod with that name.
func (n *Node) AwaitGone(pod string) {
	n.t.Helper()
	n.Eventually("pod "+pod+" is gone", func() error {
		pods, err := n.Pods()
		if p, ok := pods[pod]; err == nil && ok {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
}

// LogTail returns the end of the agent's log.
func (n *Node) LogTail(lines int) string {
	return files.Tail(filepath.Join(n.Dir, "log"), lines)
}
