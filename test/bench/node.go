package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/sim"
)

// node is an agent with a simulated runtime and a device plugin, in a directory of its own.
type node struct {
	dir, manifests string
	port           int
	processes      []*process
	agent          *process
	runtime        *sim.Client
	client         *cri.Client
	events         *tally
	serial         int    // of the last pod
	seen           uint64 // of the runtime's journal
}

// process is one that we started.
type process struct{ *exec.Cmd }

// cpuTick is the unit of times in /proc/PID/stat, the same on every Linux (proc_pid_stat(5)).
const cpuTick = 10 * time.Millisecond

// cpu is the CPU time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; state is the first field after it.
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/%d/stat: %d fields", p.Process.Pid, len(fields))
	}
	var sum time.Duration
	for _, text := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/%d/stat: %w", p.Process.Pid, err)
		}
		sum += time.Duration(ticks) * cpuTick
	}
	return sum, nil
}

// startNode starts runtime, agent and plugin and waits until the agent answers.
func startNode(ctx context.Context, binary string) (*node, error) {
	dir, err := os.MkdirTemp("", "nb-")
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, manifests: filepath.Join(dir, "manifests")}
	if err := n.bring(ctx, binary); err != nil {
		return nil, errors.Join(err, n.stop(true))
	}
	return n, nil
}

func (n *node) bring(ctx context.Context, binary string) error {
	for _, sub := range []string{"manifests", "staging", "root", "root/device-plugins"} {
		if err := os.Mkdir(filepath.Join(n.dir, sub), 0o755); err != nil {
			return err
		}
	}
	control := filepath.Join(n.dir, "control.sock")
	endpoint := "unix://" + filepath.Join(n.dir, "cri.sock")
	if _, err := n.spawn(binary, "runtime", "cri", "sim", "--listen="+endpoint,
		"--control="+control); err != nil {
		return err
	}
	n.runtime = sim.NewClient(control)
	err := await(ctx, "the runtime serves", func() error { return n.connect(ctx, endpoint) })
	if err != nil {
		return err
	}
	args, err := n.configure(endpoint)
	if err != nil {
		return err
	}
	if n.agent, err = n.spawn(binary, "agent", args...); err != nil {
		return err
	}
	_, err = n.spawn(binary, "plugin", "plugin", "sim", "--resource="+resource,
		fmt.Sprintf("--devices=%d", machineCPUs), fmt.Sprintf("--nodes=0-%d", machineNodes-1),
		"--dir="+filepath.Join(n.dir, "root", "device-plugins"))
	if err != nil {
		return err
	}
	return await(ctx, "the agent answers", func() error {
		_, err := n.get("/healthz")
		return err
	})
}

func (n *node) connect(ctx context.Context, endpoint string) (err error) {
	if n.client, err = cri.Connect(ctx, cri.Config{RuntimeEndpoint: endpoint}); err != nil {
		return err
	}
	n.events = follow(n.client)
	return nil
}

// configure writes the agent's machine and configuration and returns its arguments.
func (n *node) configure(endpoint string) ([]string, error) {
	var err error
	if n.port, err = freePort(); err != nil {
		return nil, err
	}
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": n.manifests, "containerRuntimeEndpoint": endpoint,
		"podLogsDir":       filepath.Join(n.dir, "logs"),
		"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted",
		"systemReserved":         map[string]string{"cpu": "1"},
		"enforceNodeAllocatable": []string{"none"}, "cgroupsPerQOS": false,
		"failSwapOn": false, "failCgroupV1": false, "maxPods": machineCPUs,
		"healthzPort": 0, "readOnlyPort": n.port, "address": "127.0.0.1",
	})
	if err != nil {
		return nil, err
	}
	config, machine := filepath.Join(n.dir, "config.yaml"), filepath.Join(n.dir, "machine.yaml")
	if err := os.WriteFile(config, raw, 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(machine, []byte(machineYAML()), 0o644); err != nil {
		return nil, err
	}
	return []string{"--config=" + config, "--topology-from=" + machine,
		"--root-dir=" + filepath.Join(n.dir, "root"), "--hostname-override=node"}, nil
}

// The machine has enough CPUs and devices for each of some 200 pods to have one of its own.
const (
	machineNodes = 8
	machineCPUs  = 256
)

// machineYAML is a machine with machineNodes nodes, each a socket with SMT and one L3 cache.
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

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// spawn starts the binary with its output in a file; it dies with this process.
func (n *node) spawn(binary, name string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(n.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w; build it with make build", binary, err)
	}
	p := &process{cmd}
	n.processes = append(n.processes, p)
	return p, nil
}

// stop ends everything; keep leaves the directory with the logs.
func (n *node) stop(keep bool) error {
	var errs []error
	for i := len(n.processes) - 1; i >= 0; i-- {
		if err := n.processes[i].Process.Kill(); err != nil {
			errs = append(errs, err)
		}
		_ = n.processes[i].Wait() // it was killed, which is an error
	}
	if n.events != nil {
		n.events.stop()
		errs = append(errs, n.client.Close())
	}
	if keep {
		return errors.Join(append(errs, fmt.Errorf("the logs are in %s", n.dir))...)
	}
	return errors.Join(append(errs, os.RemoveAll(n.dir))...)
}

// get asks the agent's read-only port.
func (n *node) get(path string) ([]byte, error) {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", n.port, path))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, raw)
	}
	return raw, err
}

// phases are the pods of the agent's /pods by name.
func (n *node) phases() (map[string]v1.PodPhase, error) {
	raw, err := n.get("/pods")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("decode /pods: %w", err)
	}
	out := map[string]v1.PodPhase{}
	for _, pod := range list.Items {
		// A static pod's name ends with that of its node.
		out[strings.TrimSuffix(pod.Name, "-node")] = pod.Status.Phase
	}
	return out, nil
}

// patience bounds each wait.
const patience = 60 * time.Second

// await tries until check succeeds.
func await(ctx context.Context, what string, check func() error) error {
	return poll{every: 10 * time.Millisecond}.until(ctx, what, check)
}

// until is await at the poll's pace.
func (p poll) until(ctx context.Context, what string, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if pause(ctx, p.every) != nil {
			return fmt.Errorf("waited in vain until %s: %w", what, err)
		}
	}
}
