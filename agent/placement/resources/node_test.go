package resources

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
	"github.com/numalet/numalet/topology/topologytest"
)

// world is a runtime and an observer with eight CPUs, and the assignments.
type world struct {
	mu       sync.Mutex
	real     map[types.UID]cri.Pod // in the runtime
	seen     map[types.UID]cri.Pod // as the observer has read it
	assigned map[types.UID]allocation.Pod
	commits  uint64 // of assigned
	// sandboxes has what the runtime was told of sandboxes, which it refuses; settled what was said of pods.
	sandboxes, settled []string
	refuses            error
	journal            []string
	rereads            int
	fail               func(id string) error
	before             func() // called before each update
	changed            chan struct{}

	// With a kernel, files hold the real sets.
	kernel   *kernel
	static   *cpumanager.Static
	machine  *topology.Machine
	specs    map[types.UID]*v1.Pod // nil: no source has spoken of the pod
	repaired int
}

func (n *world) UpdatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (
	*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := req.Resources
	n.sandboxes = append(n.sandboxes, fmt.Sprintf("%s=%d:%d+%d/%d", req.PodSandboxId, r.CpuQuota, r.CpuPeriod,
		r.CpuShares, r.MemoryLimitInBytes))
	return nil, n.refuses
}

func (n *world) UpdateContainerResources(_ context.Context, id string,
	r *runtimeapi.ContainerResources) error {
	if n.before != nil {
		n.before()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		if err := n.fail(id); err != nil {
			return err
		}
	}
	entry := fmt.Sprintf("%s=%s", id, r.Linux.CpusetCpus)
	if r.Linux.CpuQuota != 0 {
		entry += fmt.Sprintf(":%d", r.Linux.CpuQuota)
	}
	if r.Linux.CpusetMems != "" {
		entry += "@" + r.Linux.CpusetMems
	}
	if r.Linux.CpuShares != 0 {
		entry += fmt.Sprintf("+%d", r.Linux.CpuShares)
	}
	if r.Linux.MemoryLimitInBytes != 0 {
		entry += fmt.Sprintf("/%d", r.Linux.MemoryLimitInBytes)
	}
	n.journal = append(n.journal, entry)
	if n.kernel != nil {
		n.kernel.take(id, r.Linux)
	}
	for uid, pod := range n.real {
		pod.Containers = slices.Clone(pod.Containers)
		for i := range pod.Containers {
			if pod.Containers[i].ID == id && pod.Containers[i].Applied.CPUs != "" &&
				r.Linux.CpusetCpus != "" {
				pod.Containers[i].Applied.CPUs = r.Linux.CpusetCpus
			}
		}
		n.real[uid] = pod
	}
	return nil
}

func (n *world) All() []cri.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []cri.Pod
	for _, p := range n.seen {
		out = append(out, p)
	}
	return out
}

func (n *world) Get(uid types.UID) (cri.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.seen[uid]
	return p, ok
}

func (n *world) Reread(_ context.Context, uid types.UID) (cri.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, ok := n.real[uid]
	pod.ReadAt = time.Now()
	if n.seen[uid] = pod; !ok {
		delete(n.seen, uid)
	}
	n.rereads++
	return pod, nil
}

func (n *world) state() allocation.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return allocation.State{Version: n.commits, Pods: n.assigned}
}

// runs adds a running container of the pod to the runtime; if seen, the observer has read it.
func (n *world) runs(uid types.UID, cpus string, seen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := cri.Pod{UID: uid, Containers: []cri.Container{{
		ID: string(uid) + "-c", Name: "c", State: cri.ContainerRunning,
		Applied: cri.Applied{CPUs: cpus},
	}}}
	n.real[uid] = p
	if seen {
		p.ReadAt = time.Now()
		n.seen[uid] = p
	}
}

func (n *world) assign(uid types.UID, cpus ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[types.UID]allocation.Pod{uid: {
		UID: uid, Containers: map[string]allocation.Container{"c": {allocation.CPUs(cpuset.New(cpus...))}},
	}}
	for other, p := range n.assigned {
		if other != uid {
			next[other] = p
		}
	}
	n.assigned = next
	n.commits++
}

func (n *world) updates() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Sorted(slices.Values(n.journal))
	n.journal = nil
	return strings.Join(out, " ")
}

func (n *world) lock(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *world) repairs() (count int) {
	n.lock(func() { count = n.repaired })
	return count
}

func (n *world) hardware() machine.Hardware {
	n.mu.Lock()
	defer n.mu.Unlock()
	return machine.Hardware{Machine: n.machine, CPUs: n.static}
}

// spec returns a pod's spec: by default its container asks for the CPUs that it holds.
func (n *world) spec(uid types.UID) (*v1.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, given := n.specs[uid]
	if !given {
		pod = asking(uid, strconv.Itoa(n.assigned[uid].Containers["c"].CPUs().Size()), "1Mi")
	}
	return pod, pod != nil
}

// asking is a pod whose container asks for these CPUs and this memory, and no more.
func asking(uid types.UID, cpus, memory string) *v1.Pod {
	if cpus == "0" {
		return podtest.New(string(uid), podtest.Containers("c"))
	}
	return podtest.New(string(uid), podtest.Containers("c cpu="+cpus+" memory="+memory))
}

// enter is Enter for the pod's container, as a placement.
func enter(ctx context.Context, pool *Loop, uid types.UID) (cri.Placement, func(), error) {
	pod := asking(uid, "0", "")
	if known, ok := pool.cfg.Pod(uid); ok {
		pod = known
	}
	r, leave, err := pool.Enter(ctx, pod, &pod.Spec.Containers[0])
	if err != nil {
		return cri.Placement{}, leave, err
	}
	return cri.Placement{CPUs: r.CpusetCpus, Mems: r.CpusetMems,
		Exclusive: r.CpuQuota == cgroups.Unlimited}, leave, nil
}

func (n *world) policy() *cpumanager.Static {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.static
}

// eightCPUs is a machine of eight CPUs, some of them offline.
func eightCPUs(t testing.TB, offline ...int) *topology.Machine {
	t.Helper()
	return eightCPUsOn(t, []topology.Node{{ID: 0}}, offline...)
}

// eightCPUsOn has these nodes; the CPUs are on the first.
func eightCPUsOn(t testing.TB, nodes []topology.Node, offline ...int) *topology.Machine {
	t.Helper()
	return topologytest.Machine(t, nodes, 8, func(c *topology.CPU) { c.Offline = slices.Contains(offline, c.ID) })
}

func plainNode(t *testing.T) (*world, *Loop) {
	t.Helper()
	return startNode(t, nil)
}

// startNode is plainNode with a kernel, unless it is nil.
func startNode(t *testing.T, k *kernel) (*world, *Loop) {
	t.Helper()
	m := eightCPUs(t)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &world{
		real: map[types.UID]cri.Pod{}, seen: map[types.UID]cri.Pod{}, kernel: k, static: static,
		machine: m, changed: make(chan struct{}, 1),
	}
	cfg := Config{
		Hardware: n.hardware, State: n.state, Runtime: n, Observer: n, Period: 10 * time.Second,
		Settings: Settings{ResourceOptions: cri.ResourceOptions{Period: time.Millisecond}},
		Pod:      n.spec, Changed: n.changed,
		Repaired: func(Kind) { n.lock(func() { n.repaired++ }) }, Unread: func() {},
		Settled: func(uid types.UID, err error) {
			n.lock(func() { n.settled = append(n.settled, fmt.Sprintf("%s: %v", uid, err)) })
		},
	}
	if k != nil {
		cfg.Cgroups = k
	}
	pool := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return n, pool
}

func nothingRan(types.UID) *podspec.Resources { return nil }
