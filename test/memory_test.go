package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/test/harness"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

// staticMemory switches the memory manager on. Each node of the playground has 64 GiB, including 1
// GiB in 2Mi pages and 4 GiB in 1Gi pages. On node 0, 1124 MiB are reserved.
func staticMemory(n *harness.Node) {
	n.Settings["memoryManagerPolicy"] = "Static"
	n.Settings["systemReserved"] = map[string]string{"cpu": "1", "memory": "1Gi"}
	n.Settings["reservedMemory"] = []any{
		map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "1124Mi"}},
	}
}

func memsOf(t testing.TB, n *harness.Node, pod string) string {
	t.Helper()
	return container(t, n, pod, "main").Mems
}

// memoryFile returns the exported file once it has as many pods.
func memoryFile(n *harness.Node, pods int) (raw []byte, c memorystate.Contents) {
	n.Eventually("the memory manager's file", func() (err error) {
		if raw, err = os.ReadFile(filepath.Join(n.Root, memorystate.FileName)); err != nil {
			return err
		}
		if c, err = memorystate.Decode(raw); err == nil && len(c.Entries) != pods {
			err = fmt.Errorf("it has %d pods: %s", len(c.Entries), raw)
		}
		return err
	})
	return raw, c
}

// memoryPods lists pods and the nodes on which the memory manager puts their memory.
var memoryPods = []struct{ name, limits, mems string }{
	{"wide", "cpu: 2, memory: 100Gi", "0-1"},
	{"pages", `cpu: 1, memory: 2Gi, hugepages-2Mi: 1Gi`, "2"},
	{"more-pages", `cpu: 1, memory: 2Gi, hugepages-2Mi: 1Gi`, "3"},
	{"half", "cpu: 1500m, memory: 1Gi", "2"},
}

// TestMemory: memory and huge pages of Guaranteed pods are on nodes that have them, whatever
// happens to the agent and its files.
func TestMemory(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	eager(n)
	staticMemory(n)
	n.Start()
	for _, p := range memoryPods {
		n.Pod(p.name, limited(p.name, p.limits))
		n.AwaitPhase(p.name+"-node", v1.PodRunning)
	}
	n.Pod("shared", plain("shared"))
	n.AwaitPhase("shared-node", v1.PodRunning)
	inPlace := func(n *harness.Node) {
		n.Eventually("memory is where it was", func() error {
			rows, err := n.Placements()
			for _, p := range memoryPods {
				row := rows[p.name+"-node/main"]
				mems := memsOf(t, n, p.name+"-node")
				if mems != p.mems || row.MemoryNodes != p.mems {
					return fmt.Errorf("%s: cpuset.mems %q, /placements %+v, want %s, %v",
						p.name, mems, row, p.mems, err)
				}
			}
			return nil
		})
	}
	inPlace(n)
	if mems := memsOf(t, n, "shared-node"); mems != "" {
		t.Errorf("a container without memory of its own has cpuset.mems %q", mems)
	}
	inPodResources(t, n)
	const four = "kubelet_memory_manager_pinning_requests_total 4"
	if got := n.Get("/metrics"); !strings.Contains(got, four) {
		t.Error("there is no metric of the four requests")
	}
	raw, c := memoryFile(n, len(memoryPods))
	group := c.MachineState[1]
	if c.PolicyName != "Static" || len(group.Cells) != 2 || group.NumberOfAssignments != 1 ||
		c.MachineState[2].MemoryMap["hugepages-2Mi"].Free != 0 {
		t.Errorf("exported: %s", raw)
	}

	restarts := map[string]func(){
		"an agent that is killed": func() {},
		"a state file that is damaged": func() {
			writeFile(t, filepath.Join(n.Root, store.FileName), "{")
		},
		"a state file that is gone": func() {
			if err := os.Remove(filepath.Join(n.Root, store.FileName)); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, damage := range restarts {
		t.Run(name, func(t *testing.T) {
			quietly := lastCall(n)
			n.Kill()
			damage()
			n.Start()
			inPlace(n.As(t))
			untouched(t, n, quietly, "")
			if again, _ := memoryFile(n.As(t), len(memoryPods)); !bytes.Equal(again, raw) {
				t.Errorf("exported\n%s\nwas\n%s", again, raw)
			}
		})
	}
}

func inPodResources(t *testing.T, n *harness.Node) {
	t.Helper()
	client := podresourcesv1.NewPodResourcesListerClient(podResources(n, t))
	got, err := client.Get(context.Background(), &podresourcesv1.GetPodResourcesRequest{
		PodName: "wide-node", PodNamespace: "default",
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := got.PodResources.Containers[0].Memory; len(m) != 1 || m[0].MemoryType != "memory" ||
		m[0].Size != 100<<30 || len(m[0].Topology.Nodes) != 2 {
		t.Errorf("memory of the wide pod: %v", m)
	}
	all, err := client.GetAllocatableResources(context.Background(),
		&podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Memory) != 12 || all.Memory[2].MemoryType != "memory" ||
		all.Memory[2].Size != 59<<30-1124<<20 {
		t.Errorf("allocatable: %v", all.Memory)
	}
}

// TestMemoryBesideDevices: CPUs, devices and memory of a pod, or of each of its containers, are on
// one node if the policy requires it.
func TestMemoryBesideDevices(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	staticMemory(n)
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Start()
	n.Plugin("example.com/gpu", "--devices=4", "--nodes=0-3")
	for i := range 4 {
		name := fmt.Sprintf("gpu%d", i)
		n.Pod(name, limited(name, "cpu: 4, memory: 40Gi, example.com/gpu: 1"))
		n.AwaitPhase(name+"-node", v1.PodRunning)
		if row := placementOf(t, n, name+"-node/main"); row.Aligned == nil || !*row.Aligned ||
			row.MemoryNodes != row.NUMANodes || memsOf(t, n, name+"-node") != row.NUMANodes {
			t.Errorf("%s: %+v", name, row)
		}
	}
	n.Pod("none", limited("none", "cpu: 4, memory: 40Gi"))
	pod := n.AwaitPhase("none-node", v1.PodFailed)
	if pod.Status.Reason != "UnexpectedAdmissionError" ||
		!strings.Contains(pod.Status.Message,
			"failed to find NUMA nodes to extend the current topology hint") {
		t.Errorf("without room: %s: %s", pod.Status.Reason, pod.Status.Message)
	}

	n.Kill()
	n.Settings["topologyManagerScope"] = "pod"
	n.Start()
	for i := range 3 {
		// A pod that the agent does not know yet would count as gone.
		n.AwaitPhase(fmt.Sprintf("gpu%d-node", i), v1.PodRunning)
	}
	for i := range 3 {
		n.RemovePod(fmt.Sprintf("gpu%d", i))
		n.AwaitGone(fmt.Sprintf("gpu%d-node", i))
	}
	n.Pod("two", manifestOf("two", `containers:
  - {name: main, image: sim.local/app, resources: {limits: {cpu: 2, memory: 25Gi}}}
  - name: more
    image: sim.local/app
    resources: {limits: {cpu: 2, memory: 25Gi, example.com/gpu: 1}}`))
	n.AwaitPhase("two-node", v1.PodRunning)
	main, more := placementOf(t, n, "two-node/main"), placementOf(t, n, "two-node/more")
	if main.NUMANodes != more.NUMANodes || !*main.Aligned || main.MemoryNodes != more.MemoryNodes {
		t.Errorf("in pod scope: %+v and %+v", main, more)
	}
}

// TestSwitchOverMemory: a running pod keeps the memory that the kubelet gave to it, and new pods
// get other memory.
func TestSwitchOverMemory(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	eager(n)
	staticMemory(n)
	const uid = "3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c11"
	n.Settings["cpuManagerPolicy"] = "none"
	n.Start()
	n.Pod("own", strings.Replace(limited("own", "cpu: 2, memory: 50Gi"), "metadata:\n",
		"metadata:\n  uid: "+uid+"\n", 1))
	pod := n.AwaitPhase("own-node", v1.PodRunning)
	n.RemovePod("own")
	n.AwaitGone("own-node")
	n.Kill()
	for _, file := range []string{store.FileName, memorystate.FileName} {
		if err := os.Remove(filepath.Join(n.Root, file)); err != nil {
			t.Fatal(err)
		}
	}

	pod.Status = v1.PodStatus{}
	byKubelet(t, n, &pod, "", nil)
	file, err := memorystate.Encode(memorystate.Contents{
		PolicyName: "Static",
		Entries: memorystate.ContainerMemoryAssignments{uid: {"main": {
			{NUMAAffinity: []int{0}, Type: "memory", Size: 50 << 30},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(n.Root, memorystate.FileName), string(file))
	since := lastCall(n)
	n.Pod("own", strings.Replace(limited("own", "cpu: 2, memory: 50Gi"), "metadata:\n",
		"metadata:\n  uid: "+uid+"\n", 1))
	n.Start()
	n.AwaitPhase("own-node", v1.PodRunning)
	n.Pod("new", limited("new", "cpu: 2, memory: 50Gi"))
	n.AwaitPhase("new-node", v1.PodRunning)
	untouched(t, n, since, "new-node")
	if got := memsOf(t, n, "new-node"); got != "1" {
		t.Errorf("the new pod is on nodes %q, the kubelet's is on 0", got)
	}
	_, c := memoryFile(n, 2)
	b := c.Entries[uid]["main"]
	if len(b) != 1 || b[0].Size != 50<<30 || b[0].NUMAAffinity[0] != 0 {
		t.Errorf("exported: %+v", c.Entries)
	}
}

// A configuration whose reservations do not add up is refused in the kubelet's words.
func TestReservedMemoryMustAddUp(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	staticMemory(n)
	n.Settings["systemReserved"] = map[string]string{"cpu": "1", "memory": "2Gi"}
	n.StartOnly()
	n.Eventually("the agent refuses", func() error {
		const want = `the total amount "1124Mi" of type "memory" is not equal to the value ` +
			`"2148Mi" determined by Node Allocatable feature`
		if log := n.LogTail(5); !strings.Contains(strings.ReplaceAll(log, `\"`, `"`), want) {
			return fmt.Errorf("it says %s", log)
		}
		return nil
	})
}

// A threshold in percent follows the machine's total memory, which a reboot may change a little.
// The agent starts all the same.
func TestReservedMemoryMayDrift(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	staticMemory(n)
	// 1 GiB, and 1% of a machine with 1% more memory than the playground's 256 GiB.
	n.Settings["evictionHard"] = map[string]string{"memory.available": "1%"}
	n.Settings["reservedMemory"] = []any{
		map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "3850008683"}},
	}
	n.Start()
}

// A memory manager's file that cannot be read is moved aside and written anew.
func TestCorruptMemoryState(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	staticMemory(n)
	if err := os.MkdirAll(n.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	const damaged = `{"policyName":"Static","machineState":{}`
	writeFile(t, filepath.Join(n.Root, memorystate.FileName), damaged)
	n.Start()
	n.Pod("own", limited("own", "cpu: 2, memory: 50Gi"))
	n.AwaitPhase("own-node", v1.PodRunning)
	memoryFile(n, 1)
	aside, err := filepath.Glob(filepath.Join(n.Root, memorystate.FileName+".*"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("moved aside: %q, %v", aside, err)
	}
	if raw, err := os.ReadFile(aside[0]); err != nil || string(raw) != damaged {
		t.Errorf("%s has %q, %v", aside[0], raw, err)
	}
	n.Eventually("the log says so", func() error {
		if !strings.Contains(n.LogTail(10000), "moved to "+aside[0]) {
			return fmt.Errorf("it does not name %s", aside[0])
		}
		return nil
	})
}
