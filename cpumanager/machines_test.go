package cpumanager_test

import (
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// grid is a regular machine: so many of each inside the level above. A node has its own caches. If
// nodesPerSocket is negative, a node consists of that many sockets.
type grid struct {
	sockets, nodesPerSocket, cachesPerNode, coresPerCache, threads int
	offline                                                        []int
}

var (
	laptop   = grid{1, 1, 1, 4, 2, nil}
	twoNodes = grid{2, 1, 1, 4, 2, nil}  // CPUs 0-15; siblings are n and n+8; node 1 is 4-7,12-15
	nps4     = grid{2, 4, 2, 4, 2, nil}  // 8 nodes with two caches of 4 cores
	chiplets = grid{1, 1, 4, 4, 2, nil}  // one node, 4 caches; siblings are n and n+16
	cluster  = grid{4, -2, 1, 2, 2, nil} // 2 nodes of 2 sockets each
	noSMT    = grid{2, 2, 1, 4, 1, nil}
	smt4     = grid{2, 1, 1, 2, 4, nil}
)

// spec numbers CPUs as Linux does on PCs: the first threads of all cores, then the second ones.
func (g grid) spec() topology.Spec {
	var spec topology.Spec
	nodes, cachesPerSocket := g.sockets*g.nodesPerSocket, g.nodesPerSocket*g.cachesPerNode
	if g.nodesPerSocket < 0 {
		nodes, cachesPerSocket = g.sockets/-g.nodesPerSocket, g.cachesPerNode
	}
	for n := range nodes {
		spec.Nodes = append(spec.Nodes, topology.Node{ID: topology.NodeID(n), MemoryBytes: 1 << 30})
	}
	cores := g.sockets * cachesPerSocket * g.coresPerCache
	for t := range g.threads {
		for c := range cores {
			cache := c / g.coresPerCache
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID:      t*cores + c,
				Core:    topology.CoreID(c),
				L3:      topology.L3ID(cache * g.coresPerCache),
				Node:    topology.NodeID(c * nodes / cores),
				Socket:  topology.SocketID(cache / cachesPerSocket),
				Offline: slices.Contains(g.offline, t*cores+c),
			})
		}
	}
	return spec
}

// unequal returns a machine with nodes of cores with these numbers of threads, numbered core by
// core. Each core has its own cache.
func unequal(nodes ...[]int) topology.Spec {
	var spec topology.Spec
	for n, cores := range nodes {
		spec.Nodes = append(spec.Nodes, topology.Node{ID: topology.NodeID(n)})
		for _, threads := range cores {
			first := len(spec.CPUs)
			for t := range threads {
				spec.CPUs = append(spec.CPUs, topology.CPU{
					ID: first + t, Core: topology.CoreID(first), L3: topology.L3ID(first),
					Node: topology.NodeID(n), Socket: topology.SocketID(n),
				})
			}
		}
	}
	return spec
}

func (g grid) machine(t testing.TB) *topology.Machine {
	t.Helper()
	return topologytest.Of(t, g.spec())
}

func cpus(t topologytest.Failer, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func onNodes(ids ...topology.NodeID) topology.Hint {
	return topology.Hint{Nodes: topology.NewNodeSet(ids...), Preferred: true}
}

var anywhere = topology.Hint{Any: true}

// someGrid draws a regular machine.
func someGrid(t *rapid.T) grid {
	g := grid{
		sockets:        rapid.IntRange(1, 3).Draw(t, "sockets"),
		nodesPerSocket: rapid.SampledFrom([]int{1, 1, 2, 3, -2}).Draw(t, "nodesPerSocket"),
		cachesPerNode:  rapid.IntRange(1, 3).Draw(t, "cachesPerNode"),
		coresPerCache:  rapid.IntRange(1, 3).Draw(t, "coresPerCache"),
		threads:        rapid.SampledFrom([]int{1, 2, 2, 3, 4, 8}).Draw(t, "threads"),
	}
	if g.nodesPerSocket < 0 {
		g.sockets = 4
	}
	return g
}

func someOf(t *rapid.T, set cpuset.CPUSet, label string) cpuset.CPUSet {
	if set.IsEmpty() {
		return set
	}
	list := rapid.SliceOfN(rapid.SampledFrom(set.List()), 0, 2*set.Size()).Draw(t, label)
	return cpuset.New(list...)
}
