package guest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// TestFirstDiscovery compares what numalet prints of the machine with the kernel's files.
func TestFirstDiscovery(t *testing.T) {
	m := shown(t)
	t.Run("machine", testMachine)
	t.Run("nodes", func(t *testing.T) { testNodes(t, m) })
	t.Run("huge pages", func(t *testing.T) { testHugePages(t, m) })
	t.Run("sockets", func(t *testing.T) { testSockets(t, m) })
	t.Run("threads", func(t *testing.T) {
		testGroups(t, m, "topology/thread_siblings_list",
			func(c topology.CPU) int { return int(c.Core) })
	})
	t.Run("L3 caches", func(t *testing.T) {
		testGroups(t, m, "cache/index3/shared_cpu_list",
			func(c topology.CPU) int { return int(c.L3) })
	})
	t.Run("PCI functions", func(t *testing.T) { testPCI(t, m) })
}

// shown is the machine as numalet shows it.
func shown(t *testing.T) (m topology.Spec) {
	t.Helper()
	out, err := exec.Command(dir+"/numalet", "topology", "show", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		t.Fatalf("numalet topology show: %v", err)
	}
	return m
}

// testMachine: the machine is one on which the other tests mean something.
func testMachine(t *testing.T) {
	cpus, nodes := saidList(t, cpuDir, "online"), saidList(t, nodeDir, "online")
	sockets := map[int]bool{}
	for _, cpu := range cpus.List() {
		sockets[saidNumber(t, cpuFile(cpu, "topology/physical_package_id"))] = true
	}
	there := said(t, nodeDir, "node0/distance")
	back := said(t, nodeDir, "node2/distance")
	row(t, "%d CPUs, %d nodes, %d sockets; distances from node 0: %s, from node 2: %s",
		cpus.Size(), nodes.Size(), len(sockets), there, back)
	if cpus.Size() != 16 || nodes.Size() != 4 || len(sockets) != 2 ||
		saidList(t, cpuFile(0, "topology/thread_siblings_list")).Size() != 2 ||
		there != "10 12 21 21" || back != "24 24 10 12" {
		t.Error("this is another machine")
	}
	controllers := said(t, cgroupDir, "cgroup.controllers")
	row(t, "cgroup v2: %s", controllers)
	for _, want := range []string{"cpuset", "cpu", "memory", "hugetlb", "pids"} {
		if !slices.Contains(strings.Fields(controllers), want) {
			t.Errorf("cgroup controller %s is missing", want)
		}
	}
}

func testNodes(t *testing.T, m topology.Spec) {
	type facts struct {
		CPUs      string
		Memory    uint64
		Distances []int
	}
	got, want := map[int]facts{}, map[int]facts{}
	online := saidList(t, nodeDir, "online")
	for _, node := range online.List() {
		at := filepath.Join(nodeDir, fmt.Sprintf("node%d", node))
		f := facts{CPUs: nodeCPUs(t, node).String(), Memory: memTotal(t, at)}
		for _, text := range strings.Fields(said(t, at, "distance")) {
			distance, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			f.Distances = append(f.Distances, distance)
		}
		want[node] = f
		row(t, "node %d: CPUs %s, %d MiB, distances %v", node, f.CPUs, f.Memory>>20, f.Distances)
	}
	for _, node := range m.Nodes {
		f := facts{Memory: node.MemoryBytes}
		var cpus []int
		for _, c := range m.CPUs {
			if c.Node == node.ID && !c.Offline {
				cpus = append(cpus, c.ID)
			}
		}
		f.CPUs = cpuset.New(cpus...).String()
		for _, to := range online.List() {
			f.Distances = append(f.Distances, node.Distances[topology.NodeID(to)])
		}
		got[int(node.ID)] = f
	}
	equal(t, want, got)
}

// memTotal is a node's memory in bytes, "Node 0 MemTotal: 642932 kB".
func memTotal(t *testing.T, node string) uint64 {
	t.Helper()
	for line := range strings.Lines(said(t, node, "meminfo")) {
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[2] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseUint(fields[3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
	t.Fatalf("%s/meminfo has no MemTotal", node)
	return 0
}

func testHugePages(t *testing.T, m topology.Spec) {
	got, want := map[string]uint64{}, map[string]uint64{}
	for _, node := range saidList(t, nodeDir, "online").List() {
		pools, err := filepath.Glob(filepath.Join(nodeDir, fmt.Sprintf("node%d/hugepages/*", node)))
		if err != nil || len(pools) == 0 {
			t.Fatalf("node %d has no pools of huge pages: %v", node, err)
		}
		for _, pool := range pools {
			if n := saidNumber(t, pool, "nr_hugepages"); n > 0 {
				want[fmt.Sprintf("node %d %s", node, filepath.Base(pool))] = uint64(n)
			}
		}
	}
	for _, node := range m.Nodes {
		for _, pool := range node.HugePages {
			if pool.Count > 0 {
				got[fmt.Sprintf("node %d hugepages-%dkB", node.ID, pool.PageBytes>>10)] = pool.Count
			}
		}
	}
	if len(want) < 4 {
		t.Errorf("the kernel has given huge pages to few nodes: %v", want)
	}
	row(t, "%v", want)
	equal(t, want, got)
}

func testSockets(t *testing.T, m topology.Spec) {
	got, want := map[int]int{}, map[int]int{}
	for _, c := range m.CPUs {
		got[c.ID] = int(c.Socket)
	}
	for _, cpu := range saidList(t, cpuDir, "online").List() {
		want[cpu] = saidNumber(t, cpuFile(cpu, "topology/physical_package_id"))
	}
	equal(t, want, got)
}

// testGroups: CPUs that the kernel lists together, and no others, have one id.
func testGroups(t *testing.T, m topology.Spec, file string, id func(topology.CPU) int) {
	members := map[int][]int{}
	for _, c := range m.CPUs {
		members[id(c)] = append(members[id(c)], c.ID)
	}
	var got, want []string
	for _, cpus := range members {
		got = append(got, cpuset.New(cpus...).String())
	}
	for _, cpu := range saidList(t, cpuDir, "online").List() {
		want = append(want, saidList(t, cpuFile(cpu, file)).String())
	}
	want = slices.Compact(want)
	row(t, "%s", strings.Join(want, " "))
	slices.Sort(got)
	slices.Sort(want)
	equal(t, want, got)
}

func testPCI(t *testing.T, m topology.Spec) {
	type facts struct {
		Node                  int
		Class, Vendor, Device string
	}
	got, want := map[string]facts{}, map[string]facts{}
	for _, p := range m.PCI {
		got[p.Address] = facts{int(p.Node), p.Class, p.Vendor, p.Device}
	}
	entries, err := os.ReadDir(pciDir)
	if err != nil {
		t.Fatal(err)
	}
	byNode := map[int]int{}
	for _, e := range entries {
		at := filepath.Join(pciDir, e.Name())
		want[e.Name()] = facts{pciNode(t, e.Name()), said(t, at, "class"), said(t, at, "vendor"),
			said(t, at, "device")}
		byNode[pciNode(t, e.Name())]++
	}
	row(t, "functions of each node: %v", byNode)
	if len(byNode) != 5 {
		t.Errorf("the kernel knows functions on nodes %v, want all four and those without one",
			byNode)
	}
	equal(t, want, got)
}

func equal[T any](t *testing.T, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the kernel (-) and numalet (+) differ:\n%s", diff)
	}
}
