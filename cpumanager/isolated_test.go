package cpumanager_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

func isolating(t topologytest.Failer, m *topology.Machine, reserved, isolated string,
	o cpumanager.Options) *cpumanager.Static {
	t.Helper()
	s, err := cpumanager.NewStatic(m, cpus(t, reserved), o)
	if err == nil {
		s, err = s.Isolating(cpus(t, isolated))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	isolated = topology.CPURules{Isolated: true}
	whole    = topology.CPURules{WholeCores: true}
)

// Each online CPU is reserved, isolated or ordinary, whatever was requested; nobody shares an
// isolated one; and a kubelet would find all of them in its file.
func TestIsolatedCPUsAreAPoolOfTheirOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		reserved := someOf(t, m.Online(), "reserved").Union(cpuset.New(m.Online().List()[0]))
		apart := someOf(t, m.Online().Union(m.Offline()), "isolated")
		o := cpumanager.Options{StrictReservation: rapid.Bool().Draw(t, "strict")}
		plain, err := cpumanager.NewStatic(m, reserved, o)
		if err != nil {
			t.Skip("nothing is left")
		}
		s, err := plain.Isolating(apart)
		if err != nil {
			if !o.StrictReservation || !m.Online().IsSubsetOf(apart.Union(reserved)) {
				t.Fatal(err)
			}
			t.Skip("nothing is left")
		}
		assigned := someOf(t, m.Online().Difference(reserved), "assigned")
		own := s.For(isolated)
		ordinary, free := s.Free(assigned), own.Free(assigned)
		if both := ordinary.Intersection(free); !both.IsEmpty() {
			t.Fatalf("%s are in both pools", both)
		}
		all := ordinary.Union(free).Union(assigned).Union(s.Reserved())
		if !all.Equals(m.Online()) || !free.IsSubsetOf(apart) {
			t.Fatalf("%s and isolated %s make up %s of %s", ordinary, free, all, m.Online())
		}
		for _, one := range []*cpumanager.Static{s, own} {
			shared := one.Shared(assigned)
			if want := plain.Shared(assigned).Difference(apart.Difference(reserved)); !shared.Equals(want) {
				t.Fatalf("%s are shared, want %s", shared, want)
			}
			if got := one.KubeletDefault(assigned); !got.Equals(plain.Shared(assigned)) {
				t.Fatalf("the kubelet's default set is %s, want %s", got, plain.Shared(assigned))
			}
		}
	})
}

// Chosen CPUs are from the pool, and the hints are those of a machine with just these CPUs.
func TestPlacesOfIsolatedCPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, false)
		apart := someOf(t, m.Online().Difference(cpuset.New(0)), "isolated")
		s := isolating(t, m, "0", apart.String(), cpumanager.Options{}).For(isolated)
		free := s.Free(someOf(t, m.Online(), "assigned"))
		n := rapid.IntRange(1, apart.Size()+1).Draw(t, "n")
		got, err := s.Choose(free, cpuset.New(), n, anywhere)
		var short *cpumanager.IsolatedShortageError
		if n > free.Size() {
			if !errors.As(err, &short) || short.Available != free.Size() ||
				!short.Isolated.Equals(apart) {
				t.Fatalf("%d of %s: %v", n, free, err)
			}
			return
		}
		if err != nil || got.Size() != n || !got.IsSubsetOf(free) {
			t.Fatalf("%d of %s are %s, %v", n, free, got, err)
		}
		for _, hint := range s.Supply(free, cpuset.New(), n).Hints() {
			if m.CPUsOfNodes(hint.Nodes).Intersection(free).Size() < n {
				t.Fatalf("nodes %s have no %d of %s", hint.Nodes, n, free)
			}
			if narrow := fewestNodes(m, apart, n); hint.Preferred != (hint.Nodes.Len() == narrow) {
				t.Fatalf("%s is preferred or not, and %d nodes can do", hint, narrow)
			}
		}
	})
}

// fewestNodes returns how many nodes it takes to have n of the CPUs.
func fewestNodes(m *topology.Machine, of cpuset.CPUSet, n int) int {
	best := len(m.Nodes()) + 1
	ids := m.NodeSet().IDs()
	for bits := range 1 << len(ids) {
		var some []topology.NodeID
		for i, id := range ids {
			if bits>>i&1 == 1 {
				some = append(some, id)
			}
		}
		set := topology.NewNodeSet(some...)
		if m.CPUsOfNodes(set).Intersection(of).Size() >= n {
			best = min(best, set.Len())
		}
	}
	return best
}

// Padding gives whole cores with as few CPUs as possible, at least as many as requested, and nobody
// else has their threads.
func TestPaddingToWholeCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, true)
		s, err := cpumanager.NewStatic(m, cpuset.New(m.Online().List()[0]),
			cpumanager.Options{DistributeAcrossCores: rapid.Bool().Draw(t, "across cores")})
		if err != nil {
			t.Skip("nothing is left")
		}
		free := s.Free(someOf(t, m.Online(), "assigned"))
		asked := rapid.IntRange(1, m.Online().Size()).Draw(t, "n")
		if s.Padded(free, asked) != asked {
			t.Fatal("nobody has asked for whole cores")
		}
		s = s.For(whole)
		fewest := 0
		for _, some := range coreUnions(m, free) {
			if some >= asked && (fewest == 0 || some < fewest) {
				fewest = some
			}
		}
		n := s.Padded(free, asked)
		got, err := s.Choose(free, cpuset.New(), n, anywhere)
		switch {
		case n < asked:
			t.Fatalf("%d are padded to %d", asked, n)
		case fewest == 0 && err == nil:
			t.Fatalf("%d of %s are %s, and no cores have as many", asked, free, got)
		case fewest > 0 && (err != nil || n != fewest || got.Size() != n || !s.Whole(got)):
			t.Fatalf("%d of %s are %s (%d), want %d, %v", asked, free, got, n, fewest, err)
		}
	})
}

// coreUnions returns the numbers of CPUs that whole cores of the set have together.
func coreUnions(m *topology.Machine, set cpuset.CPUSet) (out []int) {
	sums := map[int]bool{0: true}
	for _, id := range m.Cores() {
		core := m.CPUsOfCore(id)
		if !core.IsSubsetOf(set) {
			continue
		}
		next := map[int]bool{}
		for sum := range sums {
			next[sum], next[sum+core.Size()] = true, true
		}
		sums = next
	}
	for sum := range sums {
		out = append(out, sum)
	}
	return out
}

func TestIsolatedTogetherWithWholeCores(t *testing.T) {
	m := twoNodes.machine(t) // siblings are n and n+8
	both := isolating(t, m, "0", "2-3,10,5,13", cpumanager.Options{}).
		For(topology.CPURules{Isolated: true, WholeCores: true})
	free := both.Free(cpuset.New())
	if n := both.Padded(free, 3); n != 4 {
		t.Errorf("3 CPUs are padded to %d", n)
	}
	if got, err := both.Choose(free, cpuset.New(), 4, anywhere); err != nil ||
		got.String() != "2,5,10,13" {
		t.Errorf("%s, %v", got, err)
	}
	var unaligned *cpumanager.SMTAlignmentError
	if n := both.Padded(free, 5); n != 6 {
		t.Errorf("5 CPUs are padded to %d", n)
	}
	if err := both.CheckAlignment(free, cpuset.New(), 5); !errors.As(err, &unaligned) {
		t.Errorf("5 CPUs of two whole cores: %v", err)
	}
}

// Isolated CPUs that go offline are isolated when they come back, and no other CPU becomes
// isolated.
func TestIsolatedCPUsGoAndCome(t *testing.T) {
	g := twoNodes
	s := isolating(t, g.machine(t), "0", "2-3", cpumanager.Options{})
	g.offline = []int{3}
	less := s.On(g.machine(t))
	if less.Isolated().String() != "2" || !less.Isolates() {
		t.Errorf("isolated are %s", less.Isolated())
	}
	g.offline = []int{0, 2, 3}
	none := less.On(g.machine(t))
	if !none.Isolated().IsEmpty() || !none.Isolates() || none.Reserved().Size() != 1 {
		t.Errorf("isolated are %s, reserved %s", none.Isolated(), none.Reserved())
	}
	var short *cpumanager.IsolatedShortageError
	_, err := none.For(isolated).Choose(cpuset.New(), cpuset.New(), 1, anywhere)
	if !errors.As(err, &short) || !strings.Contains(err.Error(), "the node isolates 2 (2-3)") {
		t.Error(err)
	}
	if back := none.On(twoNodes.machine(t)); back.Isolated().String() != "2-3" ||
		back.Reserved().String() != "0" {
		t.Errorf("isolated are %s, reserved %s", back.Isolated(), back.Reserved())
	}
	g.offline = twoNodes.machine(t).Online().Difference(cpus(t, "2-3")).List()
	last := s.On(g.machine(t))
	if last.Shared(cpuset.New()).IsEmpty() {
		t.Error("only isolated CPUs are online and nothing can be shared")
	}
}

func TestReservedIsolated(t *testing.T) {
	m := twoNodes.machine(t)
	got, err := cpumanager.Reserved(m, cpus(t, "0-1,8-9"), 2000, cpumanager.Options{})
	if err != nil || got.String() != "2,10" {
		t.Errorf("reserved are %s, %v", got, err)
	}
	_, err = cpumanager.Reserved(m, cpus(t, "0-14"), 2000, cpumanager.Options{})
	if err == nil || !strings.Contains(err.Error(), "1 online that are not isolated") {
		t.Error(err)
	}
}

func TestIsolatingErrors(t *testing.T) {
	s := isolating(t, twoNodes.machine(t), "0", "", cpumanager.Options{StrictReservation: true})
	for list, want := range map[string]string{
		"15-17": `the machine has no "16-17"`, "1-15": "none is left to share",
	} {
		if _, err := s.Isolating(cpus(t, list)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("isolate %s: %v, want %s", list, err, want)
		}
	}
}
