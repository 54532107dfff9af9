package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/test/harness"
)

// hotplug is a machine below a directory, in the files of the kernel: 2 nodes of 2 cores with 2
// threads. CPUs n and n+4 are siblings; node 1 has CPUs 2-3 and 6-7.
type hotplug struct {
	t    *testing.T
	root string
}

func newHotplug(t *testing.T) hotplug {
	h := hotplug{t, t.TempDir()}
	h.write("proc/meminfo", "MemTotal: 16777216 kB")
	h.write("sys/devices/system/cpu/present", "0-7")
	for node, list := range []string{"0-1,4-5", "2-3,6-7"} {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		h.write(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: 8388608 kB", node))
		h.write(dir+"distance", []string{"10 20", "20 10"}[node])
		h.write(dir+"cpulist", list)
	}
	h.online("0-7")
	return h
}

func (h hotplug) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.t.Fatal(err)
	}
}

// online takes all CPUs outside the list offline. As in the kernel, offline CPUs have no core and
// socket, and their siblings' lists leave them out.
func (h hotplug) online(list string) {
	h.t.Helper()
	set := cpus(h.t, list)
	for cpu := range 8 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		if !set.Contains(cpu) {
			if err := os.RemoveAll(filepath.Join(h.root, dir)); err != nil {
				h.t.Fatal(err)
			}
			continue
		}
		siblings := cpuset.New(cpu%4, cpu%4+4).Intersection(set)
		h.write(dir+"physical_package_id", fmt.Sprint(cpu%4/2))
		h.write(dir+"thread_siblings_list", siblings.String())
	}
	h.write("sys/devices/system/cpu/online", list)
}

func hotplugNode(t *testing.T) (*harness.Node, hotplug) {
	h := newHotplug(t)
	n := harness.New(t)
	n.Args = append(n.Args, "--topology-from="+h.root)
	n.Settings["cpuManagerReconcilePeriod"] = "100ms"
	n.Settings["reservedSystemCPUs"] = "0,4"
	n.Settings["systemReserved"] = nil
	n.Settings["cpuManagerPolicyOptions"] = map[string]string{"full-pcpus-only": "true"}
	n.Start()
	return n, h
}

// awaitShared waits until the pod's container may run on exactly these CPUs.
func awaitShared(n *harness.Node, pod, want string) {
	n.Eventually(pod+" shares CPUs "+want, func() error {
		rows, err := n.Placements()
		if got := rows[pod+"/main"].CPUs; err == nil && got != want {
			err = fmt.Errorf("it has %s", got)
		}
		return err
	})
}

// awaitEvent waits until the log has the event that many times.
func awaitEvent(n *harness.Node, pod, reason, message string, times int) {
	n.Eventually(fmt.Sprintf("pod %s has %d events %s", pod, times, reason), func() error {
		raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		if err != nil {
			return err
		}
		count := 0
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, `"Event"`) && strings.Contains(line, pod) &&
				strings.Contains(line, reason) && strings.Contains(line, message) {
				count++
			}
		}
		if count != times {
			return fmt.Errorf("there are %d", count)
		}
		return nil
	})
}

// TestHotplug takes CPUs offline and back while pods run. The shared pool and the allocatable CPUs
// follow. A container keeps its exclusive CPUs, and its pod gets an event.
func TestHotplug(t *testing.T) {
	t.Parallel()
	n, h := hotplugNode(t)
	n.Pod("shared", plain("shared"))
	n.AwaitPhase("shared-node", v1.PodRunning)
	n.Pod("own", limited("own", "cpu: 2, memory: 1Gi"))
	n.AwaitPhase("own-node", v1.PodRunning)
	if own := container(t, n, "own-node", "main").CPUs; own != "1,5" {
		t.Fatalf("the exclusive container has %s, want the core 1,5", own)
	}
	awaitShared(n, "shared-node", "0,2-4,6-7")
	updates := len(calls(n, call{method: "UpdateContainerResources"}))

	h.online("0-6")
	awaitShared(n, "shared-node", "0,2-4,6")
	for name, want := range map[string]struct{ request, reason, message string }{
		"large": {"3500m", "OutOfcpu", "requested: 3500, used: 2000, capacity: 5000"},
		"whole": {"4", "SMTAlignmentError", "available physical CPUs = 3, requested CPUs = 4"},
	} {
		n.Pod(name, limited(name, "memory: 1Gi, cpu: "+want.request))
		status := n.AwaitPhase(name+"-node", v1.PodFailed).Status
		if status.Reason != want.reason || !strings.Contains(status.Message, want.message) {
			t.Errorf("%s CPUs: %s %s, want %s %s", want.request, status.Reason, status.Message,
				want.reason, want.message)
		}
		n.RemovePod(name)
		n.AwaitGone(name + "-node")
	}

	h.online("0,2-6") // CPU 1 is exclusive to the container
	awaitEvent(n, "own-node", "CPUOffline",
		"CPUs 1 of container main are offline: it runs on 5 alone", 1)
	awaitShared(n, "shared-node", "0,2-4,6")
	h.online("0-3,5-7") // CPU 4 is reserved
	awaitEvent(n, "own-node", "CPUOnline",
		"CPUs 1 of container main are online again: it runs on 1,5", 1)
	awaitShared(n, "shared-node", "0,2-3,6-7")
	if got := calls(n, call{method: "UpdateContainerResources"}); len(got) != updates {
		t.Errorf("containers were updated, although only offline CPUs differ: %+v", got[updates:])
	}

	h.online("0-7")
	awaitShared(n, "shared-node", "0,2-4,6-7")
	n.Pod("again", limited("again", "cpu: 4, memory: 1Gi"))
	n.AwaitPhase("again-node", v1.PodRunning)
	if got := container(t, n, "again-node", "main").CPUs; got != "2-3,6-7" {
		t.Errorf("four CPUs of two cores are %s, want 2-3,6-7", got)
	}
}

// TestRestartWhileCPUsAreOffline starts the agent on a machine that has lost CPUs of a container.
// The agent says so, adopts the pod, and gives a restarted container what is left.
func TestRestartWhileCPUsAreOffline(t *testing.T) {
	t.Parallel()
	n, h := hotplugNode(t)
	n.Pod("own", limited("own", "cpu: 2, memory: 1Gi"))
	n.AwaitPhase("own-node", v1.PodRunning)
	before := container(t, n, "own-node", "main")
	n.Kill()
	h.online("0-4,6-7") // without CPU 5
	n.Start()
	n.AwaitPhase("own-node", v1.PodRunning)
	awaitEvent(n, "own-node", "CPUOffline",
		"CPUs 5 of container main are offline: it runs on 1 alone", 1)
	if now := container(t, n, "own-node", "main"); now.Subject.ID != before.Subject.ID {
		t.Errorf("the container was restarted: %+v, was %+v", now, before)
	}
	n.Pod("other", limited("other", "cpu: 2, memory: 1Gi"))
	n.AwaitPhase("other-node", v1.PodRunning)
	if got := container(t, n, "other-node", "main").CPUs; got != "2,6" {
		t.Errorf("another container has %s, want the core 2,6", got)
	}
	h.online("0-7")
	awaitEvent(n, "own-node", "CPUOnline",
		"CPUs 5 of container main are online again: it runs on 1,5", 1)
}
