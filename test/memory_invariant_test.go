package test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// pages is the only size of huge pages that workloads request.
const pages = v1.ResourceName("hugepages-2Mi")

// checkEnv maps a resource to the environment variable in which a container states how much it
// should have.
var checkEnv = map[v1.ResourceName]string{
	v1.ResourceMemory: "CHECK_MEMORY", pages: "CHECK_PAGES",
}

// amounts returns how much memory and huge pages the container requests, in bytes.
func (n need) amounts() map[v1.ResourceName]uint64 {
	q := resource.MustParse(cmp.Or(n.memory, "64Mi"))
	out := map[v1.ResourceName]uint64{v1.ResourceMemory: uint64(q.Value())}
	if n.pages != "" {
		q = resource.MustParse(n.pages)
		out[pages] = uint64(q.Value())
	}
	return out
}

// forPods returns what pods can get of node id of the playground under staticMemory, in bytes.
func forPods(id topology.NodeID, name v1.ResourceName) uint64 {
	switch {
	case name == pages:
		return 1 << 30
	case id == 0:
		return 59<<30 - 1124<<20
	default:
		return 59 << 30
	}
}

// overpromised describes why the blocks cannot all be held: a node is in two groups, or a group has
// less than is promised of it. It returns "" if they can.
func overpromised(blocks []memory.Block) string {
	sums := map[topology.NodeSet]map[v1.ResourceName]uint64{}
	for _, b := range blocks {
		if sums[b.Nodes] == nil {
			sums[b.Nodes] = map[v1.ResourceName]uint64{}
		}
		sums[b.Nodes][b.Resource] += b.Size
	}
	groups := slices.SortedFunc(maps.Keys(sums), topology.NodeSet.Compare)
	for i, group := range groups {
		for _, other := range groups[:i] {
			if !group.Intersect(other).IsEmpty() {
				return fmt.Sprintf("nodes are used in the groups %s and %s", group, other)
			}
		}
		for name, sum := range sums[group] {
			has := uint64(0)
			for _, id := range group.IDs() {
				has += forPods(id, name)
			}
			if sum > has {
				return fmt.Sprintf("nodes %s have %d bytes of %s, %d are promised",
					group, has, name, sum)
			}
		}
	}
	return ""
}

// remembersLocked checks the memory of all running containers.
func (m *monitor) remembersLocked() {
	var blocks []memory.Block
	for _, c := range m.live {
		nodes, err := topology.ParseNodeSet(c.Mems)
		if err != nil || nodes.IsEmpty() {
			m.foundLocked("%s has cpuset.mems %q", nameOf(c), c.Mems)
			continue
		}
		for name, variable := range checkEnv {
			if size, _ := strconv.ParseUint(c.Env()[variable], 10, 64); size > 0 {
				blocks = append(blocks, memory.Block{Nodes: nodes, Resource: name, Size: size})
			}
		}
	}
	if text := overpromised(blocks); text != "" {
		m.foundLocked("of running containers, %s", text)
	}
}

// lacksMemory reports whether the pod was rejected and that is allowed. Memory may have been short
// even if the message names another resource, which the pod would have got.
func lacksMemory(w workload, pod v1.Pod) bool {
	return w.mayLackMemory && pod.Status.Phase == v1.PodFailed &&
		pod.Status.Reason == allocation.ReasonUnexpected
}

// remembered compares where a container's memory is with what the state file records.
func remembered(c crisim.Container, n need, given allocation.Container) error {
	var nodes topology.NodeSet
	got := map[v1.ResourceName]uint64{}
	for _, b := range given.Memory() {
		nodes = nodes.Union(b.Nodes)
		got[b.Resource] += b.Size
	}
	if c.Mems != nodes.String() {
		return fmt.Errorf("cpuset.mems is %q, the state file says %q", c.Mems, nodes)
	}
	if len(got) > 0 && !maps.Equal(got, n.amounts()) {
		return fmt.Errorf("the state file says %v, it wants %v", got, n.amounts())
	}
	return nil
}
