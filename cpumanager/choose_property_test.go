package cpumanager_test

import (
	"math/bits"
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// choice is one call of Choose.
type choice struct {
	machine        *topology.Machine
	free, reusable cpuset.CPUSet
	n              int
	hint           topology.Hint
	got            cpuset.CPUSet
}

func (c choice) pool() cpuset.CPUSet { return c.free.Union(c.reusable) }

// drawChoice makes a choice on a random machine, a regular one unless odd.
func drawChoice(t *rapid.T, odd, reuse bool) choice {
	c := choice{machine: oddMachine(t, odd)}
	c.free = someOf(t, c.machine.Online(), "free")
	if rapid.Bool().Draw(t, "mostly free") {
		c.free = c.machine.Online().Difference(c.free)
	}
	if reuse {
		c.reusable = someOf(t, c.machine.Online(), "reusable")
	}
	c.n = rapid.IntRange(0, c.pool().Size()).Draw(t, "n")
	if c.hint.Any = rapid.Bool().Draw(t, "any"); !c.hint.Any {
		some := rapid.SliceOf(rapid.SampledFrom(c.machine.NodeSet().IDs()))
		c.hint.Nodes = topology.NewNodeSet(some.Draw(t, "hint")...)
	}
	c.choose(t)
	return c
}

func (c *choice) choose(t topologytest.Failer) {
	t.Helper()
	s := newStatic(t, c.machine, cpuset.New(c.machine.Online().List()[0]))
	got, err := s.Choose(c.free, c.reusable, c.n, c.hint)
	if err != nil {
		t.Fatal(err)
	}
	c.got = got
}

func TestChooseBasics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChoice(t, true, true)
		if c.got.Size() != c.n {
			t.Fatalf("%d cpus, want %d", c.got.Size(), c.n)
		}
		if !c.got.IsSubsetOf(c.pool()) {
			t.Fatalf("%s is not part of %s", c.got, c.pool())
		}
		again := c
		if again.choose(t); !again.got.Equals(c.got) {
			t.Fatalf("%s, then %s", c.got, again.got)
		}

		inside := c.pool()
		if !c.hint.Any {
			inside = inside.Intersection(c.machine.CPUsOfNodes(c.hint.Nodes))
		}
		if n := c.got.Intersection(inside).Size(); n != min(c.n, inside.Size()) {
			t.Fatalf("%d of %d cpus are inside the hint, which has %d", n, c.n, inside.Size())
		}
		reusable := c.reusable.Intersection(inside)
		if n := c.got.Intersection(reusable).Size(); n != min(c.n, reusable.Size()) {
			t.Fatalf("%d of %d cpus are reused, of %d", n, c.n, reusable.Size())
		}
	})
}

// A free core is split only if the CPUs from its node cannot be had otherwise.
func TestChooseSplitsFewCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := someGrid(t)
		g.threads = rapid.IntRange(1, 2).Draw(t, "threads")
		g.nodesPerSocket = max(g.nodesPerSocket, 1)
		if g.cachesPerNode*g.coresPerCache*g.threads > 12 {
			t.Skip("too many CPUs to try all choices")
		}
		all := topologytest.Of(t, g.spec()).Online()
		g.offline = someOf(t, all, "offline").Difference(cpuset.New(0)).List()
		c := choice{machine: topologytest.Of(t, g.spec()), hint: anywhere}
		c.free = someOf(t, c.machine.Online(), "free")
		c.n = rapid.IntRange(0, c.free.Size()).Draw(t, "n")
		c.choose(t)
		for _, node := range c.machine.Nodes() {
			free := c.free.Intersection(c.machine.CPUsOfNode(node.ID))
			got := c.got.Intersection(free)
			fewest := free.Size()
			for _, other := range subsets(free, got.Size()) {
				fewest = min(fewest, splitCores(c.machine, free, other))
			}
			if n := splitCores(c.machine, free, got); n > fewest {
				t.Fatalf("on node %d, %s of %s splits %d cores, but %d would do",
					node.ID, got, free, n, fewest)
			}
		}
	})
}

func splitCores(m *topology.Machine, free, got cpuset.CPUSet) int {
	n := 0
	for _, id := range m.Cores() {
		core := m.CPUsOfCore(id)
		part := core.Intersection(got).Size()
		if core.IsSubsetOf(free) && 0 < part && part < core.Size() {
			n++
		}
	}
	return n
}

func subsets(set cpuset.CPUSet, size int) (out []cpuset.CPUSet) {
	list := set.List()
	for mask := range uint(1) << len(list) {
		if bits.OnesCount(mask) != size {
			continue
		}
		var ids []int
		for i, id := range list {
			if mask&(1<<i) != 0 {
				ids = append(ids, id)
			}
		}
		out = append(out, cpuset.New(ids...))
	}
	return out
}

func TestChooseTakesAWholeNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := choice{machine: topologytest.Of(t, someGrid(t).spec()), hint: anywhere}
		whole := rapid.SampledFrom(c.machine.NodeSet().IDs()).Draw(t, "node")
		c.n = c.machine.CPUsOfNode(whole).Size()
		c.free = someOf(t, c.machine.Online(), "free").Union(c.machine.CPUsOfNode(whole))
		if rapid.Bool().Draw(t, "reuse") {
			c.reusable = someOf(t, c.machine.CPUsOfNode(whole), "reusable")
		}
		c.choose(t)
		nodes := c.machine.NodesOf(c.got)
		if c.machine.CPUsOfNodes(nodes).Size() != c.n {
			t.Fatalf("%s is %d cpus of nodes %s, and node %d is free", c.got, c.n, nodes, whole)
		}
		if !c.reusable.IsEmpty() && nodes != topology.NewNodeSet(whole) {
			t.Fatalf("%s leaves the node of the reusable %s", c.got, c.reusable)
		}
	})
}

// Whole cores that fit one cache group of a node come from one.
func TestChooseStaysInACache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := someGrid(t)
		g.nodesPerSocket = max(g.nodesPerSocket, 1)
		c := choice{machine: topologytest.Of(t, g.spec())}
		home := c.machine.CPUsOfL3(rapid.SampledFrom(c.machine.L3s()).Draw(t, "cache"))
		c.hint.Nodes = c.machine.NodesOf(home)
		var room []int
		for _, id := range home.List() {
			if cpu, _ := c.machine.CPU(id); len(room) == 0 || rapid.Bool().Draw(t, "core") {
				room = append(room, c.machine.CPUsOfCore(cpu.Core).List()...)
			}
		}
		c.free = someOf(t, c.machine.Online(), "free").Union(cpuset.New(room...))
		c.n = cpuset.New(room...).Size()
		fullest := c.machine.Online().Size()
		for _, id := range c.machine.L3s() {
			free := c.free.Intersection(c.machine.CPUsOfL3(id))
			if c.machine.NodesOf(free) == c.hint.Nodes &&
				wholeCores(c.machine, free).Size() >= c.n {
				fullest = min(fullest, free.Size())
			}
		}
		c.choose(t)
		first, _ := c.machine.CPU(c.got.List()[0])
		group := c.machine.CPUsOfL3(first.L3)
		if !c.got.IsSubsetOf(group) {
			t.Fatalf("%s is in several cache groups", c.got)
		}
		if n := c.free.Intersection(group).Size(); n != fullest {
			t.Fatalf("%s is in a group with %d free CPUs, but one with %d has room",
				c.got, n, fullest)
		}
	})
}

func wholeCores(m *topology.Machine, free cpuset.CPUSet) cpuset.CPUSet {
	whole := cpuset.New()
	for _, id := range m.Cores() {
		if core := m.CPUsOfCore(id); core.IsSubsetOf(free) {
			whole = whole.Union(core)
		}
	}
	return whole
}

// While containers and CPUs come and go, no CPU is given to two containers, and the pools add up.
func TestChooseOverTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		s := newStatic(t, m, cpuset.New(0))
		var running []cpuset.CPUSet
		assigned := func() cpuset.CPUSet { return cpuset.New().Union(running...) }
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				m = replugged(t, m)
				s = s.On(m)
				continue
			case 1, 2:
				if len(running) > 0 {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
					running = slices.Delete(running, i, i+1)
				}
				continue
			}
			n := rapid.IntRange(1, 9).Draw(t, "n")
			free := s.Free(assigned())
			got, err := s.Choose(free, cpuset.New(), n, anywhere)
			if (err != nil) != (n > free.Size()) {
				t.Fatalf("%d of %d free: %v", n, free.Size(), err)
			}
			if err == nil {
				running = append(running, got)
			}
			total := 0
			for _, set := range running {
				total += set.Size()
			}
			if total != assigned().Size() || assigned().Contains(0) {
				t.Fatalf("assigned twice or reserved: %v", running)
			}
			held := assigned().Intersection(m.Online()).Size()
			if s.Shared(assigned()).Size()+held != m.Online().Size() {
				t.Fatalf("shared %s and %v are not all cpus", s.Shared(assigned()), running)
			}
		}
	})
}

// replugged returns the machine with other CPUs offline, never the first one.
func replugged(t *rapid.T, m *topology.Machine) *topology.Machine {
	spec := m.Spec()
	offline := someOf(t, m.Online().Union(m.Offline()), "offline now")
	for i := range spec.CPUs {
		spec.CPUs[i].Offline = i > 0 && offline.Contains(spec.CPUs[i].ID)
	}
	return topologytest.Of(t, spec)
}
