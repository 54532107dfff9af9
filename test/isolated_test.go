package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/test/harness"
)

// asking writes a Guaranteed pod with the annotation set to "true".
func asking(n *harness.Node, name, limits, annotation string) {
	n.Pod(name, strings.Replace(limited(name, limits), "\nspec:",
		"\n  annotations: {"+annotation+`: "true"}`+"\nspec:", 1))
}

const (
	asksIsolated = "numalet.io/isolated-cpus"
	asksWhole    = "numalet.io/whole-cores"
)

// TestIsolatedCPUs: only pods that ask for isolated CPUs have them, also after the agent was
// killed. A kubelet that takes over finds each CPU in its checkpoint.
func TestIsolatedCPUs(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Args = append(n.Args, "--isolated-cpus=2-3,34-35,24")
	n.Start()
	isolated := cpus(t, "2-3,24,34-35")
	n.Pod("shared", plain("shared"))
	n.AwaitPhase("shared-node", v1.PodRunning)
	n.Pod("own", limited("own", "cpu: 10, memory: 1Gi"))
	asking(n, "packets", "cpu: 3, memory: 1Gi", asksIsolated)
	for _, name := range []string{"own", "packets"} {
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	asking(n, "many", "cpu: 5, memory: 1Gi", asksIsolated)
	asking(n, "too-many", "cpu: 6, memory: 1Gi", asksIsolated)
	asking(n, "fraction", "cpu: 500m, memory: 1Gi", asksIsolated)
	for _, name := range []string{"many", "too-many", "fraction"} {
		n.AwaitPhase(name+"-node", v1.PodFailed)
	}

	for _, name := range []string{"shared", "own"} {
		set := cpus(t, container(t, n, name+"-node", "main").CPUs)
		if both := set.Intersection(isolated); !both.IsEmpty() || set.IsEmpty() {
			t.Errorf("%s runs on %s, and %s are isolated", name, set, both)
		}
	}
	packets := container(t, n, "packets-node", "main").CPUs
	if set := cpus(t, packets); set.Size() != 3 || !set.IsSubsetOf(cpus(t, "2-3,34-35")) {
		t.Errorf("three isolated CPUs of a node are %s", set)
	}
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"many":     {"OutOfIsolatedCPUs", "the node isolates 5 (2-3,24,34-35)"},
		"too-many": {"OutOfIsolatedCPUs", "requested=6"},
		"fraction": {"PlacementForbidden", "no container of the pod asks for CPUs of its own"},
	} {
		if s := pods[name+"-node"].Status; s.Reason != want[0] || !strings.Contains(s.Message, want[1]) {
			t.Errorf("%s: %s, %s; want %q", name, s.Reason, s.Message, want)
		}
	}
	text, err := explainPod(t, n, "packets-node")
	for _, want := range []string{
		"3 isolated CPUs (gets " + packets + ")", "isolated CPUs: 5 of 5",
		"the pod chose by " + asksIsolated,
	} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v; there is no %q in\n%s", err, want, text)
		}
	}

	n.Kill()
	n.StartOnly()
	n.Eventually("the agent knows its pods again", func() error {
		_, err := explainPod(t, n, "packets-node")
		return err
	})
	if now := container(t, n, "packets-node", "main").CPUs; now != packets {
		t.Errorf("after a restart of the agent the isolated CPUs are %s, and were %s", now, packets)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(n.Root, checkpoint.FileName))
	if err != nil {
		t.Fatal(err)
	}
	file, err := checkpoint.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	all := file.Default
	for _, pod := range file.Entries {
		for _, own := range pod {
			all = all.Union(own)
		}
	}
	if all.Size() != harness.AssignableCPUs+1 {
		t.Errorf("the kubelet's file has the CPUs %s", all)
	}
}

// TestWholeCores: three CPUs are given as two whole cores, of which no other container has a
// thread, with the CPU time of three CPUs.
func TestWholeCores(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["cpuManagerReconcilePeriod"] = "100ms"
	n.Start()
	asking(n, "solver", "cpu: 3, memory: 1Gi", asksWhole)
	n.AwaitPhase("solver-node", v1.PodRunning)
	n.Pod("next", limited("next", "cpu: 57, memory: 1Gi"))
	n.AwaitPhase("next-node", v1.PodRunning)
	n.Pod("more", limited("more", "cpu: 3, memory: 1Gi"))
	n.AwaitPhase("more-node", v1.PodFailed) // 63 CPUs less 4 and 57

	c := container(t, n, "solver-node", "main")
	set := cpus(t, c.CPUs)
	if set.Size() != 4 {
		t.Errorf("three CPUs are padded to %s", set)
	}
	for _, id := range set.List() {
		if !set.Contains((id + 32) % 64) {
			t.Errorf("%s has CPU %d and not the other thread of its core", set, id)
		}
	}
	r := c.Resources
	if r.GetCpuPeriod() == 0 || r.GetCpuQuota() != 3*r.GetCpuPeriod() {
		t.Errorf("the quota is %d of %d", r.GetCpuQuota(), r.GetCpuPeriod())
	}
	if got := container(t, n, "next-node", "main").Resources.GetCpuQuota(); got > 0 {
		t.Errorf("CPUs as many as asked for come with a quota of %d", got)
	}
	if got := calls(n, call{method: "UpdateContainerResources", pod: "solver-node"}); len(got) > 0 {
		t.Errorf("the container was updated: %+v", got)
	}
	text, err := explainPod(t, n, "solver-node")
	const want = "3 exclusive CPUs, padded to 4 for whole cores (gets "
	if err != nil || !strings.Contains(text, want) {
		t.Errorf("%v; there is no %q in\n%s", err, want, text)
	}
}
