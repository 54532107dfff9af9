package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// sysfs makes a machine of one NUMA node in a directory.
func sysfs(t *testing.T, pages int) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range map[string]string{
		"proc/meminfo":                          "MemTotal: 16777216 kB\n",
		"sys/devices/system/cpu/online":         "0-3\n",
		"sys/devices/system/cpu/present":        "0-3\n",
		"sys/devices/system/node/node0/cpulist": "0-3\n",
		"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 16777216 " +
			"kB\n",
		"sys/devices/system/node/node0/distance":                    "10\n",
		"sys/devices/system/node/node0/hugepages/" + pool:           fmt.Sprintln(pages),
		"sys/devices/system/cpu/cpu0/topology/core_id":              "0\n",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_id":              "1\n",
		"sys/devices/system/cpu/cpu2/topology/core_id":              "2\n",
		"sys/devices/system/cpu/cpu3/topology/core_id":              "3\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, path), text)
	}
	return root
}

const pool = "hugepages-2048kB/nr_hugepages"

// small returns a node on the machine of sysfs, with 1124 MiB reserved.
func small(t *testing.T, pages int) (n *harness.Node, setPages func(int)) {
	t.Helper()
	n = harness.New(t)
	staticMemory(n)
	root := sysfs(t, pages)
	n.Args[len(n.Args)-1] = "--topology-from=" + root
	return n, func(pages int) {
		writeFile(t, filepath.Join(root, "sys/devices/system/node/node0/hugepages", pool),
			fmt.Sprintln(pages))
	}
}

// TestHugePagesFollow: pages that are added while the agent runs are available at once, and the
// amount of memory that containers are told follows.
func TestHugePagesFollow(t *testing.T) {
	t.Parallel()
	n, setPages := small(t, 8)
	n.Start()
	const want = "cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi"
	n.Pod("early", limited("early", want))
	n.AwaitPhase("early-node", v1.PodFailed)
	setPages(32)
	n.Pod("late", limited("late", want))
	n.AwaitPhase("late-node", v1.PodRunning)
	_, c := memoryFile(n, 1)
	pages := c.MachineState[0].MemoryMap["hugepages-2Mi"]
	if pages.Allocatable != 64<<20 || pages.Free != 0 {
		t.Errorf("exported: %+v", pages)
	}
	n.Pod("told", manifestOf("told", `containers:
  - name: main
    image: sim.local/app
    env: [{name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}]`))
	n.AwaitPhase("told-node", v1.PodRunning)
	if got := container(t, n, "told-node", "main").Env()["MEMORY"]; got != "15196" {
		t.Errorf("a container without a limit is told of %s MiB, "+
			"16384 less 1124 and 64 are left", got)
	}
}

// If pages that pods hold disappear, that is reported once. The pods go on, and no other pod gets
// pages until there are enough again.
func TestHugePagesGo(t *testing.T) {
	t.Parallel()
	n, setPages := small(t, 32)
	n.Start()
	n.Pod("held", limited("held", "cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi"))
	n.AwaitPhase("held-node", v1.PodRunning)
	since := lastCall(n)
	setPages(16)
	// This pod makes the agent look at the machine again.
	n.Pod("early", limited("early", "cpu: 1, memory: 1Gi, hugepages-2Mi: 16Mi"))
	pod := n.AwaitPhase("early-node", v1.PodFailed)
	if !strings.Contains(pod.Status.Message, "[memorymanager]") &&
		pod.Status.Reason != "OutOfhugepages-2Mi" {
		t.Errorf("refused: %s: %s", pod.Status.Reason, pod.Status.Message)
	}
	n.Eventually("the event", func() error {
		log := n.LogTail(10000)
		const want = `reason="MemoryOvercommitted" message="NUMA nodes 0 have less ` +
			`hugepages-2Mi than was promised: 64Mi of container main have no room`
		if strings.Count(log, `reason="MemoryOvercommitted"`) != 1 || !strings.Contains(log, want) {
			return fmt.Errorf("it is not there once")
		}
		return nil
	})
	untouched(t, n, since, "early-node")
	n.AwaitPhase("held-node", v1.PodRunning)

	n.Kill()
	n.Start() // missing pages are no reason to stop the pod here either
	n.AwaitPhase("held-node", v1.PodRunning)
	untouched(t, n, since, "early-node")
	n.RemovePod("early") // it may be decided anew, and would take what the next one asks for
	n.AwaitGone("early-node")
	setPages(40)
	n.Pod("late", limited("late", "cpu: 1, memory: 1Gi, hugepages-2Mi: 16Mi"))
	n.AwaitPhase("late-node", v1.PodRunning)
}
