package cpumanager_test

import (
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestResizes: a container that is resized any number of times keeps what it had when it grows, and gives
// back what it got last when it shrinks.
func TestResizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		o := cpumanager.Options{
			FullPCPUsOnly:        rapid.Bool().Draw(t, "whole"),
			DistributeAcrossNUMA: rapid.Bool().Draw(t, "distribute"),
		}
		s := newStaticWith(t, m, cpuset.New(m.Online().List()[0]), o)
		free, own, added := s.Free(cpuset.New()), cpuset.New(), []cpuset.CPUSet(nil)
		for range rapid.IntRange(1, 6).Draw(t, "resizes") {
			has := cpumanager.Layers(own, added)
			n := rapid.IntRange(0, free.Size()+1).Draw(t, "n")
			got, err := s.Resize(free, cpuset.New(), has, n, drawHint(t, m))
			if err != nil {
				more, can := n-own.Size(), sums(m, free.Difference(own))
				if more >= 0 && more < len(can) && (can[more] || !o.FullPCPUsOnly) {
					t.Fatalf("%s to %d of %s: %v", own, n, free, err)
				}
				continue
			}
			checkResize(t, has, own, got, n)
			if more := got.Difference(own); n > own.Size() && !own.IsEmpty() {
				added = append(added, more)
			} else if own.IsEmpty() {
				added = nil
			}
			own = got
		}
	})
}

// checkResize checks that got has n CPUs, and those of own that come first.
func checkResize(t *rapid.T, has []cpuset.CPUSet, own, got cpuset.CPUSet, n int) {
	t.Helper()
	switch {
	case got.Size() != n:
		t.Fatalf("%d CPUs, %s, are to be %d: %s", own.Size(), own, n, got)
	case n >= own.Size() && !own.IsSubsetOf(got):
		t.Fatalf("grown from %s to %d: %s", own, n, got)
	case n >= own.Size():
		return
	}
	for _, layer := range has {
		if both := layer.Intersection(got); both.Size() < min(layer.Size(), n) {
			t.Fatalf("shrunk from %v to %d: %s", has, n, got)
		}
		n = max(0, n-layer.Size())
	}
}

// TestResizeNear: what is added is on the same core, cache and node, in this order.
func TestResizeNear(t *testing.T) {
	m := topologytest.Of(t, nps4.spec())
	s := newStatic(t, m, cpuset.New(0))
	own := cpuset.New(70) // a thread of core 6, in the second cache of node 0
	for _, n := range []int{2, 4, 8, 15} {
		next, err := s.Resize(s.Free(cpuset.New(1, 65)), cpuset.New(), []cpuset.CPUSet{own}, n, anywhere)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%2d: %s", n, next)
		own = next
		switch nodes := m.NodesOf(own); {
		case n == 2 && !own.Equals(cpuset.New(6, 70)):
			t.Errorf("%s and not the core", own)
		case n <= 8 && !own.IsSubsetOf(cpuset.New(4, 5, 6, 7, 68, 69, 70, 71)):
			t.Errorf("%s leaves the cache", own)
		case n > 8 && nodes.Len() != 2: // 13 CPUs of the node are free
			t.Errorf("%s is on nodes %s", own, nodes)
		}
	}
}

// TestResizeKeepsCompact: of what a container started with, whole cores stay.
func TestResizeKeepsCompact(t *testing.T) {
	s := newStatic(t, topologytest.Of(t, twoNodes.spec()), cpuset.New(0))
	got, err := s.Resize(cpuset.New(), cpuset.New(), []cpuset.CPUSet{cpuset.New(1, 2, 9, 10, 12)}, 2, anywhere)
	if want := []int{1, 9}; err != nil || !slices.Equal(got.List(), want) {
		t.Errorf("%s, %v; want %v", got, err, want)
	}
}

// TestResizeEven: distributed CPUs are as evenly on the nodes after a resize as if they had been chosen at
// once.
func TestResizeEven(t *testing.T) {
	m := topologytest.Of(t, twoNodes.spec())
	s := newStaticWith(t, m, cpuset.New(0), cpumanager.Options{DistributeAcrossNUMA: true})
	own := cpuset.New(4, 5, 12, 13, 6, 14) // of node 1
	got, err := s.Resize(s.Free(cpuset.New()), cpuset.New(), []cpuset.CPUSet{own}, 12,
		topology.Hint{Nodes: m.NodeSet()})
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Intersection(m.CPUsOfNodes(topology.NewNodeSet(0))).Size(); n != 6 {
		t.Errorf("%d of %s are on node 0", n, got)
	}
}
