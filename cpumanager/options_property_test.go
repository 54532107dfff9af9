package cpumanager_test

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// oddMachine draws a machine with 1 to 8 threads per core; if odd, some may be offline, or the
// cores may have different numbers of threads.
func oddMachine(t *rapid.T, odd bool) *topology.Machine {
	if odd && rapid.IntRange(0, 2).Draw(t, "unequal") == 0 {
		cores := rapid.SliceOfN(rapid.IntRange(1, 6), 1, 5)
		return topologytest.Of(t, unequal(rapid.SliceOfN(cores, 1, 3).Draw(t, "nodes")...))
	}
	g := someGrid(t)
	if odd && rapid.Bool().Draw(t, "odd") {
		all := topologytest.Of(t, g.spec()).Online()
		g.offline = someOf(t, all, "offline").Difference(cpuset.New(0)).List()
	}
	return topologytest.Of(t, g.spec())
}

// drawPool draws the free CPUs of a machine: few, most, or all but a few cores.
func drawPool(t *rapid.T, m *topology.Machine) cpuset.CPUSet {
	some := someOf(t, m.Online(), "some")
	switch rapid.IntRange(0, 2).Draw(t, "pool") {
	case 0:
		return some
	case 1:
		return m.Online().Difference(some)
	}
	var busy []int
	for _, id := range some.List() {
		if rapid.IntRange(0, 2).Draw(t, "busy") == 0 {
			cpu, _ := m.CPU(id)
			busy = append(busy, m.CPUsOfCore(cpu.Core).List()...)
		}
	}
	return m.Online().Difference(cpuset.New(busy...))
}

func drawHint(t *rapid.T, m *topology.Machine) topology.Hint {
	if rapid.Bool().Draw(t, "any") {
		return anywhere
	}
	ids := rapid.SliceOfN(rapid.SampledFrom(m.NodeSet().IDs()), 1, 4).Draw(t, "hint")
	return topology.Hint{Nodes: topology.NewNodeSet(ids...)}
}

// sums returns which numbers of CPUs some of the cores in pool have together.
func sums(m *topology.Machine, pool cpuset.CPUSet) []bool {
	can := make([]bool, pool.Size()+1)
	can[0] = true
	for _, id := range m.Cores() {
		core := m.CPUsOfCore(id)
		if !core.IsSubsetOf(pool) {
			continue
		}
		for n := len(can) - 1; n >= core.Size(); n-- {
			can[n] = can[n] || can[n-core.Size()]
		}
	}
	return can
}

func possible(can []bool, n int) bool { return n < len(can) && can[n] }

// Choose gives whole cores if and only if some of the free ones together have the number of CPUs,
// from the hint's nodes alone if these suffice.
func TestWholeCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		o := cpumanager.Options{
			FullPCPUsOnly:            true,
			PreferAlignByUncoreCache: rapid.Bool().Draw(t, "caches"),
		}
		o.DistributeAcrossNUMA = !o.PreferAlignByUncoreCache && rapid.Bool().Draw(t, "even")
		s := newStaticWith(t, m, cpuset.New(m.Online().List()[0]), o)
		free, reusable := drawPool(t, m), cpuset.New()
		if rapid.IntRange(0, 3).Draw(t, "reuse") == 0 {
			reusable = someOf(t, m.Online(), "reusable")
		}
		pool := free.Union(reusable)
		n := rapid.IntRange(0, pool.Size()+2).Draw(t, "n")
		hint := drawHint(t, m)
		got, err := s.Choose(free, reusable, n, hint)

		can := sums(m, pool)
		if (err == nil) != possible(can, n) {
			t.Fatalf("%d of %s: %v, but possible: %v", n, pool, err, possible(can, n))
		}
		if err != nil {
			checkFitting(t, err, can, n)
			return
		}
		if got.Size() != n || !got.IsSubsetOf(pool) {
			t.Fatalf("%d of %s: got %s", n, pool, got)
		}
		if part := wholeCores(m, got); !part.Equals(got) {
			t.Fatalf("%d of %s: got %s, of which only %s are whole cores", n, pool, got, part)
		}
		if !hint.Any {
			inside := m.CPUsOfNodes(hint.Nodes)
			if possible(sums(m, pool.Intersection(inside)), n) && !got.IsSubsetOf(inside) {
				t.Fatalf("%d of %s: got %s, but nodes %s alone would do", n, pool, got, hint.Nodes)
			}
		}
	})
}

// checkFitting checks the numbers that the error says would fit now.
func checkFitting(t *rapid.T, err error, can []bool, n int) {
	var alignment *cpumanager.SMTAlignmentError
	if !errors.As(err, &alignment) {
		t.Fatalf("%v is not an *SMTAlignmentError", err)
	}
	if !alignment.Shortage {
		return // the numbers are for the whole machine
	}
	var want []int
	for m := n - 1; m > 0 && len(want) == 0; m-- {
		if possible(can, m) {
			want = append(want, m)
		}
	}
	for m := n + 1; m < len(can); m++ {
		if can[m] {
			want = append(want, m)
			break
		}
	}
	if !slices.Equal(alignment.Fitting, want) {
		t.Fatalf("%v; %v would", err, want)
	}
}

// On machines with equal cores, each entirely free or not at all, the option changes nothing for
// multiples of a core, even with reuse.
func TestWholeCoresArePacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, false)
		first := cpuset.New(m.Online().List()[0])
		free := wholeCores(m, drawPool(t, m))
		reusable := wholeCores(m, someOf(t, m.Online(), "reusable"))
		n := rapid.IntRange(0, free.Union(reusable).Size()/m.ThreadsPerCore()).Draw(t, "cores") *
			m.ThreadsPerCore()
		hint := drawHint(t, m)
		want, err := newStatic(t, m, first).Choose(free, reusable, n, hint)
		if err != nil {
			t.Fatal(err)
		}
		whole := newStaticWith(t, m, first, cpumanager.Options{FullPCPUsOnly: true})
		got, err := whole.Choose(free, reusable, n, hint)
		if err != nil || !got.Equals(want) {
			t.Fatalf("%d of %s: got %s, %v; without the option %s", n, free, got, err, want)
		}
	})
}

// The part of a socket that a container gets comes evenly from as many of its cores as possible.
func TestDistributeAcrossCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		s := newStaticWith(t, m, cpuset.New(m.Online().List()[0]),
			cpumanager.Options{DistributeAcrossCores: true})
		free := drawPool(t, m)
		n := rapid.IntRange(0, free.Size()).Draw(t, "n")
		got, err := s.Choose(free, cpuset.New(), n, anywhere)
		if err != nil || got.Size() != n || !got.IsSubsetOf(free) {
			t.Fatalf("%d of %s: got %s, %v", n, free, got, err)
		}
		if takesWhole(m, free, n) {
			return // a node taken as a whole has its cores as a whole
		}
		for _, socket := range m.Sockets() {
			cpus := m.CPUsOfSocket(socket)
			for _, a := range m.Cores() {
				for _, b := range m.Cores() {
					coreA := m.CPUsOfCore(a).Intersection(cpus)
					coreB := m.CPUsOfCore(b).Intersection(cpus)
					left := free.Intersection(coreB).Difference(got)
					if got.Intersection(coreA).Size() > got.Intersection(coreB).Size()+1 &&
						!left.IsEmpty() {
						t.Fatalf("%d of %s: got %s, much of core %d while %s of core %d is free",
							n, free, got, a, left, b)
					}
				}
			}
		}
	})
}

// places returns the parts of nodes that lie on one socket: the smallest units packed as a whole.
func places(m *topology.Machine) (out []cpuset.CPUSet) {
	for _, node := range m.NodeSet().IDs() {
		for _, socket := range m.Sockets() {
			place := m.CPUsOfNode(node).Intersection(m.CPUsOfSocket(socket))
			if !place.IsEmpty() {
				out = append(out, place)
			}
		}
	}
	return out
}

// takesWhole reports whether n CPUs suffice for an entirely free node or socket.
func takesWhole(m *topology.Machine, free cpuset.CPUSet, n int) bool {
	for _, place := range places(m) {
		if place.IsSubsetOf(free) && place.Size() <= n {
			return true
		}
	}
	return false
}

// A request smaller than a node comes from one cache if one has room: from the one with the fewest
// free CPUs of some node.
func TestPreferAlignByUncoreCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		o := cpumanager.Options{
			PreferAlignByUncoreCache: true, FullPCPUsOnly: rapid.Bool().Draw(t, "whole"),
		}
		free := drawPool(t, m)
		if o.FullPCPUsOnly {
			free = wholeCores(m, free)
		}
		n := rapid.IntRange(1, max(1, free.Size())).Draw(t, "n")
		s := newStaticWith(t, m, cpuset.New(m.Online().List()[0]), o)
		got, err := s.Choose(free, cpuset.New(), n, anywhere)
		if err != nil || takesWhole(m, free, n) {
			return // covered by TestWholeCores and TestChooseTakesAWholeNode
		}
		var fewest []int // by place; 0: no cache has room
		var groups [][]cpuset.CPUSet
		wholeCache := false
		for at, place := range places(m) {
			fewest, groups = append(fewest, 0), append(groups, nil)
			for _, id := range m.L3s() {
				group := place.Intersection(m.CPUsOfL3(id))
				room := free.Intersection(group)
				wholeCache = wholeCache ||
					room.Size() > 0 && room.Size() <= n && group.IsSubsetOf(free)
				if !group.IsEmpty() {
					groups[at] = append(groups[at], group)
				}
				fits := room.Size() >= n && (!o.FullPCPUsOnly || possible(sums(m, room), n))
				if fits && (fewest[at] == 0 || room.Size() < fewest[at]) {
					fewest[at] = room.Size()
				}
			}
		}
		if wholeCache || slices.Max(fewest) == 0 {
			return // covered by TestOptionsAgreeWithKubelet
		}
		for at, of := range groups {
			if i := slices.IndexFunc(of, got.IsSubsetOf); i >= 0 {
				if have := free.Intersection(of[i]).Size(); have != fewest[at] {
					t.Fatalf("%d of %s: got %s, but a cache beside it has room and %d free CPUs",
						n, free, got, fewest[at])
				}
				return
			}
		}
		t.Fatalf("%d of %s: got %s, but one cache would do", n, free, got)
	})
}
