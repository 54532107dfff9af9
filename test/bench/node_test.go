package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/control"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/test/harness"
)

// node is an agent with a simulated runtime and a device plugin, all processes of their own.
type node struct {
	*harness.Node
	b       *testing.B
	runtime *control.Client
	events  *events
	serial  int    // of the last pod
	seen    uint64 // of the runtime's journal
}

// The machine has enough CPUs and devices for each of some 200 pods to have one of its own.
const (
	machineNodes = 8
	machineCPUs  = 256
)

func startNode(b *testing.B) *node { return startNodeWith(b, nil) }

// startNodeWith starts a node with some settings of its own.
func startNodeWith(b *testing.B, settings map[string]any) *node {
	dir := b.TempDir()
	endpoint := "unix://" + filepath.Join(dir, "cri.sock")
	n := &node{b: b, runtime: control.NewClient(filepath.Join(dir, "control.sock"))}
	startRuntime(b, "--listen="+endpoint, "--control="+filepath.Join(dir, "control.sock"))
	var client *cri.Client
	harness.Eventually(b, "the runtime serves", func() (err error) {
		client, err = cri.Connect(b.Context(), cri.Config{RuntimeEndpoint: endpoint})
		return err
	})
	b.Cleanup(func() { must(b, client.Close()) })
	n.events = follow(b, client)

	n.Node = harness.NewOn(b, endpoint)
	n.Settings["maxPods"] = machineCPUs
	n.Settings["topologyManagerPolicy"] = "restricted"
	maps.Copy(n.Settings, settings)
	machine := filepath.Join(dir, "machine.yaml")
	must(b, os.WriteFile(machine, []byte(machineYAML()), 0o644))
	n.Args = []string{
		"--root-dir=" + n.Root, "--hostname-override=node", "--topology-from=" + machine,
	}
	n.Start()
	n.Plugin(gpu, fmt.Sprintf("--devices=%d", machineCPUs),
		fmt.Sprintf("--nodes=0-%d", machineNodes-1))
	return n
}

func startRuntime(b *testing.B, args ...string) {
	binary, err := harness.Lab()
	must(b, err)
	cmd := exec.Command(binary, append([]string{"cri", "sim"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, which is an error
	})
}

// machineYAML returns a machine with machineNodes nodes, each a socket with SMT and one L3 cache.
func machineYAML() string {
	const cores = machineCPUs / 2
	const perNode = cores / machineNodes
	var nodes, sockets, caches strings.Builder
	for id := range machineNodes {
		first := id * perNode
		last := first + perNode - 1
		cpus := fmt.Sprintf("%d-%d,%d-%d", first, last, cores+first, cores+last)
		fmt.Fprintf(&nodes, "- {id: %d, cpus: %q, memory: 64Gi}\n", id, cpus)
		fmt.Fprintf(&sockets, "  %d: %q\n", id, cpus)
		fmt.Fprintf(&caches, "- %q\n", cpus)
	}
	return fmt.Sprintf("name: bench\nnodes:\n%ssockets:\n%scores: [\"0-%d+%d-%d\"]\nl3:\n%s",
		nodes.String(), sockets.String(), cores-1, cores, machineCPUs-1, caches.String())
}

// calls returns how many calls the runtime has received.
func (n *node) calls() int {
	var state crisim.State
	must(n.b, n.runtime.Get(n.b.Context(), "/state", &state))
	sum := 0
	for _, calls := range state.Calls {
		sum += calls
	}
	return sum
}

// until looks at the phases of the agent's /pods, by name, until check finds nothing wrong.
func (n *node) until(what string, every time.Duration,
	check func(map[string]v1.PodPhase) error) {
	n.b.Helper()
	for begin := time.Now(); ; time.Sleep(every) {
		pods, err := n.Pods()
		must(n.b, err)
		phases := map[string]v1.PodPhase{}
		for name, pod := range pods {
			// A static pod's name ends with that of its node.
			phases[strings.TrimSuffix(name, "-node")] = pod.Status.Phase
		}
		if err = check(phases); err == nil {
			return
		}
		if time.Since(begin) > harness.Patience {
			n.b.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// events counts the runtime's events since the last reset.
type events struct {
	mu     sync.Mutex // guards counts
	counts map[cri.EventType]int
	wake   chan struct{} // capacity 1
}

// follow counts the events of a runtime until the benchmark ends.
func follow(b *testing.B, client *cri.Client) *events {
	e := &events{counts: map[cri.EventType]int{}, wake: make(chan struct{}, 1)}
	runs(b, func(ctx context.Context) error {
		_ = client.Events(ctx, nil, e.count) // ends with the runtime too; await notices
		return nil
	})
	return e
}

func (e *events) count(event cri.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[event.Type]++
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *events) of(kind cri.EventType) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[kind]
}

func (e *events) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.counts)
}

// await waits for n events of a kind since the last reset.
func (e *events) await(b *testing.B, kind cri.EventType, n int) {
	late := time.After(harness.Patience)
	for e.of(kind) < n {
		select {
		case <-e.wake:
		case <-late:
			b.Fatalf("waited for %d %s events of the runtime, %d came", n, kind, e.of(kind))
		}
	}
}
