package resources

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// memoryNodes gives the machine four nodes; only the nodes in backed have memory.
func (n *world) memoryNodes(pool *Loop, backed ...topology.NodeID) {
	nodes := make([]topology.Node, 4)
	for i := range nodes {
		nodes[i].ID = topology.NodeID(i)
		if slices.Contains(backed, nodes[i].ID) {
			nodes[i].MemoryBytes = 1 << 30
		}
	}
	m := eightCPUsOn(n.kernel.t, nodes)
	n.lock(func() { n.machine, n.static = m, n.static.On(m) })
	pool.Wake()
	synctest.Wait()
}

// createdOn makes the runtime report that the pod's container was created with memory nodes, and
// writes them to its cgroup.
func (n *world) createdOn(uid types.UID, mems string) {
	n.runsReally(uid, "0-7")
	n.lock(func() {
		for _, pods := range []map[types.UID]cri.Pod{n.real, n.seen} {
			pod := pods[uid]
			pod.Containers = slices.Clone(pod.Containers)
			pod.Containers[0].Applied.Mems = mems
			pods[uid] = pod
		}
	})
	n.kernel.write(n.kernel.container(uid, "cpuset.mems"), mems)
}

// holdsMemory assigns memory of nodes to the pod's container.
func (n *world) holdsMemory(uid types.UID, nodes ...topology.NodeID) {
	n.lock(func() {
		next := maps.Clone(n.assigned)
		if next == nil {
			next = map[types.UID]allocation.Pod{}
		}
		next[uid] = allocation.Pod{UID: uid, Containers: map[string]allocation.Container{
			"c": {allocation.Memory{{
				Nodes: topology.NewNodeSet(nodes...), Resource: v1.ResourceMemory, Size: 1,
			}}},
		}}
		n.assigned = next
		n.commits++
	})
}

func bothKernels(t *testing.T, test func(t *testing.T, k *kernel)) {
	for name, kernel := range map[string]func(*testing.T) *kernel{
		"v1": newLegacyKernel, "v2": newKernel,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, kernel(t)) })
		})
	}
}

// The memory nodes that a container was created with are restored after foreign changes; nodes that
// were never set are left alone.
func TestMemoryNodesAreRepaired(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		n.memoryNodes(pool, 0, 1, 2, 3)
		n.holdsMemory("own", 1)
		n.createdOn("own", "1")
		n.createdOn("earlier", "2-3") // it has no known assignment
		n.holdsMemory("later", 0)     // assigned after its creation
		n.createdOn("later", "")
		n.createdOn("any", "")
		for _, uid := range []types.UID{"later", "any"} {
			k.write(k.container(uid, "cpuset.mems"), "0-3")
		}
		pool.Wake()
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute without changes", "")

		for _, uid := range []types.UID{"own", "earlier", "later", "any"} {
			k.write(k.container(uid, "cpuset.mems"), "0")
		}
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "after changes from outside", "earlier-c=@2-3 own-c=@1")
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute later", "")
		if got := n.repairs(); got != 2 {
			t.Errorf("%d repairs are counted, want 2", got)
		}

		// Foreign changes made together are undone in one update.
		k.set("own", "0")
		k.write(k.container("own", "cpuset.mems"), "")
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "after two changes in one cgroup", "own-c=0-7@1")
		if got := n.repairs(); got != 4 {
			t.Errorf("%d repairs are counted, want 4", got)
		}
	})
}

// Nodes that lose their memory leave cgroups for good on v1; v2 remembers them. Neither gets a node
// without memory, and on both all is as before when the memory is back.
func TestMemoryNodesThatGoAndComeBack(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		n.memoryNodes(pool, 0, 1, 2, 3)
		n.holdsMemory("own", 1, 2)
		n.createdOn("own", "1-2")
		n.holdsMemory("one", 2)
		n.createdOn("one", "2")
		pool.Wake()
		expectUpdates(t, n, "at first", "")

		back := ""
		if k.legacy {
			k.write(k.container("own", "cpuset.mems"), "1")
			k.write(k.container("one", "cpuset.mems"), "")
			back = "one-c=@2 own-c=@1-2"
		}
		k.write(k.container("one", "cpuset.mems.effective"), "0-1,3")
		n.memoryNodes(pool, 0, 1, 3)
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a node is gone", "")
		k.write(k.container("own", "cpuset.mems"), "0")
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "another one is written meanwhile", "own-c=@1")
		n.memoryNodes(pool, 0, 1, 2, 3)
		if !k.legacy {
			back = "own-c=@1-2"
		}
		expectUpdates(t, n, "it is back", back)
	})
}

// Only under the policy Static do the groups above get the memory of all nodes.
func TestGroupsAboveGetMemoryNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLegacyKernel(t)
		k.write(k.pod("a", "cpuset.mems"), "0")
		k.write(k.pod("a", "cpuset.cpus"), "0-7")
		var static *memory.Static
		pool := New(Config{
			Hardware: func() machine.Hardware { return machine.Hardware{Memory: static} },
			Cgroups:  k,
		})
		pool.followMachine(t.Context())
		if k.memory != 0 || k.widened != 0 {
			t.Errorf("without a policy the groups were widened %d and %d times",
				k.memory, k.widened)
		}
		static = &memory.Static{}
		for range 2 {
			pool.followMachine(t.Context())
		}
		if k.memory != 1 || k.widened != 0 {
			t.Errorf("widened %d and %d times, want memory alone, once", k.memory, k.widened)
		}
		expectFile(t, k.pod("a", "cpuset.mems"), "0-3")
	})
}

// A foreign change during a repair is undone in the next round, and counts as another repair.
func TestMemoryNodesChangedDuringARepair(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		n.memoryNodes(pool, 0, 1, 2, 3)
		n.createdOn("own", "1")
		n.before = func() {
			n.before = nil
			k.write(k.container("own", "cpuset.mems"), "0")
		}
		k.set("own", "0")
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "of the CPUs", "own-c=0-7")
		time.Sleep(10 * time.Second)
		expectUpdates(t, n, "at the next look", "own-c=@1")
		if got := n.repairs(); got != 2 {
			t.Errorf("%d repairs are counted, want 2", got)
		}
	})
}

// Memory nodes that do not take effect do not delay the CPUs.
func TestMemoryNodesThatAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := startNode(t, newKernel(t))
		n.memoryNodes(pool, 0, 1, 2, 3)
		n.createdOn("own", "1")
		n.lock(func() { n.kernel.stubborn = true })
		n.kernel.write(n.kernel.container("own", "cpuset.mems"), "0")
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries := len(strings.Fields(n.updates())); tries < 10 || tries > 25 {
			t.Errorf("%d tries in an hour, want one in five minutes after the first few", tries)
		}
		n.assign("x", 2)
		n.lock(func() { n.kernel.stubborn = false })
		n.before = func() { n.kernel.write(n.kernel.container("own", "cpuset.mems"), "0") }
		place, _, err := enter(t.Context(), pool, "x")
		if err != nil || place.CPUs != "2" {
			t.Errorf("Enter() = %+v, %v", place, err)
		}
		if got := n.repairs(); got > 0 {
			t.Errorf("%d repairs are counted of what was not put right", got)
		}
	})
}
