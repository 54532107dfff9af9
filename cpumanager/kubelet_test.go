package cpumanager_test

import (
	"cmp"
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// On machines with one cache per node the choice equals the kubelet's; on others it takes equal
// numbers of CPUs from each node and socket.
func TestChooseAgreesWithKubelet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChoice(t, false, false)
		want := kubelet{c.machine, cpumanager.Options{}}.choose(c)
		oneCache := len(c.machine.L3s()) <= max(len(c.machine.Nodes()), len(c.machine.Sockets()))
		if oneCache && !c.got.Equals(want) {
			t.Fatalf("%d of %s in %v: got %s, the kubelet takes %s",
				c.n, c.free, c.hint, c.got, want)
		}
		sameNodesAndSockets(t, c, want)
	})
}

// With options too, as long as no core is split; distribute-cpus-across-numa has its own test.
func TestOptionsAgreeWithKubelet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := choice{machine: oddMachine(t, false)}
		m, threads := c.machine, c.machine.ThreadsPerCore()
		c.free, c.hint = wholeCores(m, drawPool(t, m)), drawHint(t, m)
		o := cpumanager.Options{FullPCPUsOnly: rapid.Bool().Draw(t, "whole")}
		if len(m.Sockets()) <= len(m.Nodes()) {
			o.AlignBySocket = rapid.Bool().Draw(t, "socket")
		}
		if rapid.Bool().Draw(t, "caches") {
			o.PreferAlignByUncoreCache = true
		} else {
			o.DistributeAcrossCores = !o.FullPCPUsOnly && rapid.Bool().Draw(t, "spread")
		}
		c.n = rapid.IntRange(0, c.free.Size()/threads).Draw(t, "cores") * threads
		if o.DistributeAcrossCores {
			c.n = rapid.IntRange(0, c.free.Size()).Draw(t, "n")
		}
		s := newStaticWith(t, m, cpuset.New(m.Online().List()[0]), o)
		var err error
		if c.got, err = s.Choose(c.free, cpuset.New(), c.n, c.hint); err != nil {
			t.Fatal(err)
		}
		sameNodesAndSockets(t, c, kubelet{m, o}.choose(c))
	})
}

func sameNodesAndSockets(t *rapid.T, c choice, want cpuset.CPUSet) {
	same := func(what string, id any, part cpuset.CPUSet) {
		if a, b := c.got.Intersection(part).Size(), want.Intersection(part).Size(); a != b {
			t.Fatalf("%d of %s in %v: got %s, the kubelet takes %s: not as many of %s %v",
				c.n, c.free, c.hint, c.got, want, what, id)
		}
	}
	for _, id := range c.machine.NodeSet().IDs() {
		same("node", id, c.machine.CPUsOfNode(id))
	}
	for _, id := range c.machine.Sockets() {
		same("socket", id, c.machine.CPUsOfSocket(id))
	}
}

// kubelet allocates by the kubelet's documented rules: free whole units of the outer level, then of
// the inner one, then free cores, then threads; each time parent by parent, fewest free CPUs first,
// then lowest id.
type kubelet struct {
	machine *topology.Machine
	options cpumanager.Options
}

// choose takes from the hint's nodes first, or from their sockets.
func (k kubelet) choose(c choice) cpuset.CPUSet {
	want := cpuset.New()
	if !c.hint.Any {
		area := k.machine.CPUsOfNodes(c.hint.Nodes)
		for _, id := range k.machine.Sockets() {
			socket := k.machine.CPUsOfSocket(id)
			if k.options.AlignBySocket && !socket.Intersection(area).IsEmpty() {
				area = area.Union(socket)
			}
		}
		aligned := c.free.Intersection(area)
		want = k.packed(aligned, min(c.n, aligned.Size()))
	}
	return want.Union(k.packed(c.free.Difference(want), c.n-want.Size()))
}

func (k kubelet) packed(free cpuset.CPUSet, n int) cpuset.CPUSet {
	m := k.machine
	var nodes, sockets, caches, cores []cpuset.CPUSet
	for _, id := range m.NodeSet().IDs() {
		nodes = append(nodes, m.CPUsOfNode(id))
	}
	for _, id := range m.Sockets() {
		sockets = append(sockets, m.CPUsOfSocket(id))
	}
	for _, id := range m.L3s() {
		caches = append(caches, m.CPUsOfL3(id))
	}
	for _, id := range m.Cores() {
		cores = append(cores, m.CPUsOfCore(id))
	}
	outer, inner := nodes, sockets
	if len(sockets) < len(nodes) {
		outer, inner = sockets, nodes
	}
	top, p := []cpuset.CPUSet{m.Online()}, pick{free: free, left: n}
	p.takeFull(p.below(top, outer))
	p.takeFull(p.below(p.below(top, outer), inner))
	switch {
	case k.options.PreferAlignByUncoreCache:
		groups := p.below(p.below(top, nodes), caches)
		if len(sockets) < len(nodes) {
			groups = p.below(p.below(p.below(top, outer), inner), caches)
		}
		p.takeFull(groups)
		for _, g := range groups {
			if p.free.Intersection(g).Size() >= p.left {
				p.takeThreads(g)
			}
		}
	case k.options.DistributeAcrossCores:
		around := p.below(top, outer)
		if len(sockets) >= len(nodes) {
			around = p.below(around, inner)
		}
		for _, socket := range around {
			p.takeTurns(p.below([]cpuset.CPUSet{socket}, cores))
		}
	}
	p.takeFull(p.below(p.below(p.below(top, outer), inner), cores))
	for _, core := range p.below(p.below(p.below(top, outer), inner), cores) {
		p.takeThreads(core)
	}
	return p.taken
}

// pick is an allocation in progress.
type pick struct {
	free, taken cpuset.CPUSet
	left        int
}

// below lists the children of each parent.
func (p *pick) below(parents, children []cpuset.CPUSet) (out []cpuset.CPUSet) {
	for _, parent := range parents {
		var own []cpuset.CPUSet
		for _, child := range children {
			if !child.Intersection(parent).IsEmpty() {
				own = append(own, child)
			}
		}
		slices.SortStableFunc(own, func(a, b cpuset.CPUSet) int {
			return cmp.Compare(a.Intersection(p.free).Size(), b.Intersection(p.free).Size())
		})
		out = append(out, own...)
	}
	return out
}

func (p *pick) takeFull(units []cpuset.CPUSet) {
	for _, u := range units {
		if u.IsSubsetOf(p.free) && u.Size() <= p.left {
			p.takeThreads(u)
		}
	}
}

func (p *pick) takeThreads(of cpuset.CPUSet) {
	list := of.Intersection(p.free).List()
	got := cpuset.New(list[:min(p.left, len(list))]...)
	p.taken, p.free, p.left = p.taken.Union(got), p.free.Difference(got), p.left-got.Size()
}

// takeTurns takes one thread of each core, by id, in turns.
func (p *pick) takeTurns(cores []cpuset.CPUSet) {
	slices.SortFunc(cores, func(a, b cpuset.CPUSet) int { return a.List()[0] - b.List()[0] })
	for before := p.left + 1; p.left > 0 && p.left < before; {
		before = p.left
		for _, core := range cores {
			if list := core.Intersection(p.free).List(); len(list) > 0 {
				p.takeThreads(cpuset.New(list[0]))
			}
		}
	}
}
