package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// What the kernel says, read without any code of the agent.

// said is the text of a file of the kernel.
func said(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// saidList is a file with a list like "0-3,8".
func saidList(t *testing.T, elem ...string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(said(t, elem...))
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(elem...), err)
	}
	return set
}

func saidNumber(t *testing.T, elem ...string) int {
	t.Helper()
	n, err := strconv.Atoi(said(t, elem...))
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(elem...), err)
	}
	return n
}

const (
	nodeDir   = "/sys/devices/system/node"
	cpuDir    = "/sys/devices/system/cpu"
	pciDir    = "/sys/bus/pci/devices"
	cgroupDir = "/sys/fs/cgroup"
)

// nodeCPUs are a node's CPUs that are online.
func nodeCPUs(t *testing.T, node int) cpuset.CPUSet {
	t.Helper()
	return saidList(t, nodeDir, fmt.Sprintf("node%d", node), "cpulist")
}

// nodesOf are the nodes that have some of the CPUs.
func nodesOf(t *testing.T, cpus cpuset.CPUSet) cpuset.CPUSet {
	t.Helper()
	var nodes []int
	for _, node := range saidList(t, nodeDir, "online").List() {
		if !nodeCPUs(t, node).Intersection(cpus).IsEmpty() {
			nodes = append(nodes, node)
		}
	}
	return cpuset.New(nodes...)
}

// cpuFile is a file about a CPU.
func cpuFile(cpu int, name string) string {
	return filepath.Join(cpuDir, fmt.Sprintf("cpu%d", cpu), name)
}

// wholeCores: no thread of these CPUs' cores is missing.
func wholeCores(t *testing.T, cpus cpuset.CPUSet) bool {
	t.Helper()
	for _, cpu := range cpus.List() {
		if !saidList(t, cpuFile(cpu, "topology/thread_siblings_list")).IsSubsetOf(cpus) {
			return false
		}
	}
	return true
}

// pciNode is the node of a PCI function.
func pciNode(t *testing.T, address string) int {
	t.Helper()
	return saidNumber(t, pciDir, address, "numa_node")
}

// pciFunctions are the addresses of the functions whose class begins with a text, on a node that
// the kernel knows.
func pciFunctions(t *testing.T, class string) (addresses []string) {
	t.Helper()
	entries, err := os.ReadDir(pciDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(said(t, pciDir, e.Name(), "class"), class) &&
			pciNode(t, e.Name()) >= 0 {
			addresses = append(addresses, e.Name())
		}
	}
	return addresses
}
