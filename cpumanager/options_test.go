package cpumanager_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

func TestParseOptions(t *testing.T) {
	for _, c := range []struct {
		given map[string]string
		want  cpumanager.Options
		err   string
	}{
		{given: nil},
		{given: map[string]string{"full-pcpus-only": "true", "strict-cpu-reservation": "false"},
			want: cpumanager.Options{FullPCPUsOnly: true}},
		{given: map[string]string{"strict-cpu-reservation": "1", "align-by-socket": "true"},
			want: cpumanager.Options{StrictReservation: true, AlignBySocket: true}},
		{given: map[string]string{"distribute-cpus-across-numa": "true"},
			want: cpumanager.Options{DistributeAcrossNUMA: true}},
		{given: map[string]string{"distribute-cpus-across-cores": "true"},
			want: cpumanager.Options{DistributeAcrossCores: true}},
		{given: map[string]string{"prefer-align-cpus-by-uncorecache": "true"},
			want: cpumanager.Options{PreferAlignByUncoreCache: true}},
		{given: map[string]string{"full-cpus": "true"}, err: `"full-cpus" is not known; known are`},
		{given: map[string]string{"full-pcpus-only": "yes"},
			err: `"yes" is neither true nor false`},
	} {
		got, err := cpumanager.ParseOptions(c.given)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: error %v, want %q", c.given, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%v: got %+v, %v; want %+v", c.given, got, err, c.want)
		}
	}
}

func TestNewStaticRefusesOptions(t *testing.T) {
	for _, c := range []struct {
		machine  grid
		reserved string
		options  cpumanager.Options
		err      string
	}{
		{laptop, "0-7", cpumanager.Options{}, ""},
		{laptop, "0-7", cpumanager.Options{StrictReservation: true}, "none is left for pods"},
		{laptop, "0-6", cpumanager.Options{StrictReservation: true}, ""},
		{cluster, "0", cpumanager.Options{AlignBySocket: true}, "4 sockets and only 2 NUMA nodes"},
		{nps4, "0", cpumanager.Options{AlignBySocket: true}, ""},
		{twoNodes, "0", cpumanager.Options{AlignBySocket: true}, ""},
	} {
		_, err := cpumanager.NewStatic(c.machine.machine(t), cpus(t, c.reserved), c.options)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v, reserved %s: error %v, want %q", c.options, c.reserved, err, c.err)
		}
	}
}

func TestStrictReservation(t *testing.T) {
	strict := cpumanager.Options{StrictReservation: true}
	s := newStaticWith(t, twoNodes.machine(t), cpus(t, "0,8"), strict)
	if got := s.Shared(cpus(t, "1,9,4-7")).String(); got != "2-3,10-15" {
		t.Errorf("shared: %s", got)
	}
	if err := s.CheckShared(cpus(t, "1-7,9-14")); err != nil {
		t.Errorf("CPU 15 can be shared: %v", err)
	}
	var empty *cpumanager.EmptyPoolError
	if err := s.CheckShared(cpus(t, "1-7,9-15")); !errors.As(err, &empty) {
		t.Errorf("nothing can be shared: %v", err)
	}
	s = newStatic(t, twoNodes.machine(t), cpus(t, "0,8"))
	if err := s.CheckShared(cpus(t, "1-7,9-15")); err != nil {
		t.Errorf("the reserved CPUs can be shared: %v", err)
	}
}

func TestChooseWithOptions(t *testing.T) {
	oneOffline := twoNodes
	oneOffline.offline = []int{9}
	wide := grid{2, 1, 1, 2, 8, nil} // cores are n, n+4, ...; node 0 has cores 0 and 1
	whole := cpumanager.Options{FullPCPUsOnly: true}
	even := cpumanager.Options{DistributeAcrossNUMA: true}
	evenWhole := cpumanager.Options{DistributeAcrossNUMA: true, FullPCPUsOnly: true}
	evenSocket := cpumanager.Options{DistributeAcrossNUMA: true, AlignBySocket: true}
	spread := cpumanager.Options{DistributeAcrossCores: true}
	caches := cpumanager.Options{PreferAlignByUncoreCache: true}
	cachesWhole := cpumanager.Options{PreferAlignByUncoreCache: true, FullPCPUsOnly: true}
	socket := cpumanager.Options{AlignBySocket: true}
	for _, c := range []struct {
		name    string
		machine grid
		options cpumanager.Options
		free    string
		n       int
		hint    topology.Hint
		want    string
	}{
		{"whole cores only", twoNodes, whole, "0-3,9-11", 4, anywhere, "1-2,9-10"},
		{"the core beside a reserved sibling stays out", twoNodes, whole, "1-15", 2, onNodes(0),
			"1,9"},
		{"a core without its sibling is whole", oneOffline, whole, "0-8,10-15", 3, anywhere,
			"0-1,8"},
		{"eight threads are one core", wide, whole, "0-31", 8, onNodes(1), "2,6,10,14,18,22,26,30"},
		{"hint too small for whole cores", twoNodes, whole, "0-4,8-12", 10, onNodes(1), "0-4,8-12"},
		{"one node is enough", twoNodes, even, "0-15", 8, anywhere, "0-3,8-11"},
		{"the emptier of two that are enough", twoNodes, even, "1-15", 4, anywhere, "4-5,12-13"},
		{"the first of equals", noSMT, even, "0-15", 2, anywhere, "0-1"},
		{"the first in the fuller socket", noSMT, even, "1-15", 2, anywhere, "4-5"},
		{"equal balance: the remainder from many nodes", noSMT, even, "0-6,8-9", 8, anywhere,
			"0-2,4-6,8-9"},
		{"all of the remainder from one node", noSMT, even, "0-5,8-9,12-13", 8, anywhere,
			"0-3,8-9,12-13"},
		{"the node with the most whole cores", twoNodes, evenWhole, "0-2,4-6,8-10,12,15", 4,
			anywhere, "0-1,8-9"},
		{"two nodes evenly", twoNodes, even, "0-15", 10, anywhere, "0-2,4-6,8-9,12-13"},
		{"the odd one from the emptier node", twoNodes, even, "1-15", 9, anywhere,
			"1-2,4-6,9-10,12-13"},
		{"uneven room: packed", twoNodes, even, "0-6,12-14", 9, anywhere, "0-6,12-13"},
		{"whole cores evenly", twoNodes, evenWhole, "0-15", 10, anywhere, "0-2,4-5,8-10,12-13"},
		{"one socket's nodes before balance", nps4, evenSocket,
			"0-4,8-12,64-68,72-76,32-39,96-103", 18, anywhere, "0-4,8-12,64-67,72-75"},
		{"and before even parts", nps4, evenSocket,
			"8-9,16-23,72-73,80-87,32-39,96-103", 20, anywhere, "8-9,16-23,72-73,80-87"},
		{"from these alone", nps4, evenSocket, "8-9,16-23,24,72-73,80-87,88", 18, anywhere,
			"8-9,16-22,72-73,80-86"},
		{"three nodes of eight", nps4, even, "0-127", 40, onNodes(0, 1, 2),
			"0-6,8-14,16-22,64-70,72-77,80-85"},
		{"threads of four cores", laptop, spread, "0-7", 4, anywhere, "0-3"},
		{"second threads when all cores are in use", laptop, spread, "0-7", 6, anywhere, "0-5"},
		{"idle cores first", laptop, spread, "0-3,5-7", 2, anywhere, "1-2"},
		{"cores of one socket of a node", cluster, spread, "0-15", 3, anywhere, "0-1,8"},
		{"a whole node is a whole node", twoNodes, spread, "0-15", 8, anywhere, "0-3,8-11"},
		{"the fullest socket first", twoNodes, spread, "0,4-7,12-15", 3, anywhere, "0,4-5"},
		{"one cache though it splits a core", chiplets, caches, "0-7,16-20", 3, anywhere, "4-5,20"},
		{"best fit of caches", chiplets, caches, "1,4-6,8-15,17,20-22,24-31", 4, anywhere,
			"4-5,20-21"},
		{"the largest cache, then the best fit", chiplets, caches, "1-3,4-6,8-9,17-19,20-22,24-25",
			10, anywhere, "1-3,8-9,17-19,24-25"},
		{"few caches: the largest first", chiplets, caches, "1,4-5,20-21,8-9,24-25", 8, anywhere,
			"4-5,8-9,20-21,24-25"},
		{"one cache of another node", nps4, caches, "0-2,4-6,8-11", 4, anywhere, "8-11"},
		{"whole cores of one cache", chiplets, cachesWhole, "0-1,4-7,16-17,20-22", 6, anywhere,
			"4-6,20-22"},
		{"all of the hint's socket", nps4, socket, "0-1,24,64-65,88,32-63", 6, onNodes(0),
			"0-1,24,64-65,88"},
		{"packed in the hint's socket, not on its node", nps4, socket, "0-4,8-9,64-68,72-73", 4,
			onNodes(0), "8-9,72-73"},
		{"the hint's socket, though another one is fuller", nps4, socket, "0,8-32,64,72-96", 4,
			onNodes(0), "0,8,64,72"},
		{"a whole socket rather than parts of two", nps4, cpumanager.Options{}, "8-63,72-127", 64,
			anywhere, "32-63,96-127"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStaticWith(t, c.machine.machine(t), cpus(t, "0"), c.options)
			got, err := s.Choose(cpus(t, c.free), cpuset.New(), c.n, c.hint)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equals(cpus(t, c.want)) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Cores of several sizes: the largest that fits may leave a rest that the others cannot make up.
func TestChooseUnequalCores(t *testing.T) {
	for _, c := range []struct {
		nodes [][]int
		n     int
		hint  topology.Hint
		want  string
	}{
		{[][]int{{3, 2, 2}}, 4, anywhere, "3-6"},
		{[][]int{{3, 2, 2}}, 5, anywhere, "0-4"},
		{[][]int{{3}, {5, 4, 4}}, 11, anywhere, "0-2,8-15"},
		{[][]int{{2, 2, 1}, {2, 2}}, 6, onNodes(0), "0-3,5-6"},
		{[][]int{{2, 2, 1}, {2, 2}}, 7, onNodes(1), "0-1,4-8"},
	} {
		s := newStaticWith(t, topologytest.Of(t, unequal(c.nodes...)), cpuset.New(0),
			cpumanager.Options{FullPCPUsOnly: true})
		online := topologytest.Of(t, unequal(c.nodes...)).Online()
		got, err := s.Choose(online, cpuset.New(), c.n, c.hint)
		if err != nil || got.String() != c.want {
			t.Errorf("%d of %v: got %s, %v; want %s", c.n, c.nodes, got, err, c.want)
		}
	}
	reuse := topologytest.Of(t, unequal([]int{3}, []int{5, 4, 4}))
	s := newStaticWith(t, reuse, cpuset.New(3), cpumanager.Options{FullPCPUsOnly: true})
	got, err := s.Choose(cpus(t, "3-15"), cpus(t, "0-2"), 11, anywhere)
	if err != nil || got.String() != "0-2,8-15" {
		t.Errorf("reusing 0-2: got %s, %v; want 0-2,8-15", got, err)
	}
	s = newStaticWith(t, topologytest.Of(t, unequal([]int{4, 1, 1})), cpuset.New(0),
		cpumanager.Options{FullPCPUsOnly: true})
	const want = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = " +
		"6, requested CPUs = 3, CPUs per core = 4; what would fit now: 2 or 4 cpus"
	if _, err := s.Choose(cpus(t, "0-5"), cpuset.New(), 3, anywhere); err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A node may have enough CPUs and yet no cores that make up the number: then two nodes are not more
// than needed. Node 0 has as many free CPUs as node 1, but on cores that others use too.
func TestHintsOfWholeCores(t *testing.T) {
	for _, c := range []struct {
		options cpumanager.Options
		want    string
	}{
		{cpumanager.Options{}, "0 preferred; 1 preferred; 0-1"},
		{cpumanager.Options{FullPCPUsOnly: true}, "1 preferred; 0-1"},
	} {
		s := newStaticWith(t, twoNodes.machine(t), cpus(t, "7"), c.options)
		got := hintStrings(s.Supply(cpus(t, "0-5,12-13"), cpuset.New(), 4).Hints())
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.options, got, c.want)
		}
	}
}

func TestHintsUnequalCores(t *testing.T) {
	m := topologytest.Of(t, unequal([]int{4, 4}, []int{3, 3}))
	whole := cpumanager.Options{FullPCPUsOnly: true}
	for n, want := range map[int]string{
		3: "1 preferred; 0-1", 4: "0 preferred; 0-1", 7: "0-1 preferred", 5: "",
	} {
		got := newStaticWith(t, m, cpuset.New(0), whole).Supply(m.Online(), cpuset.New(), n).Hints()
		if hintStrings(got) != want {
			t.Errorf("%d cpus: got %s, want %s", n, hintStrings(got), want)
		}
	}
}

func TestAlignmentErrors(t *testing.T) {
	const prefix = "SMT Alignment Error: "
	oneOffline := twoNodes
	oneOffline.offline = []int{9}
	wide := grid{2, 1, 1, 2, 8, nil}
	for _, c := range []struct {
		name    string
		machine grid
		free    string
		n       int
		want    string
	}{
		{"odd", twoNodes, "1-15", 3,
			"requested 3 cpus not multiple cpus per core = 2; what would fit: 2 or 4 cpus"},
		{"less than a core", wide, "1-31", 1,
			"requested 1 cpus not multiple cpus per core = 8; what would fit: 8 cpus"},
		{"between two sizes", wide, "1-31", 20,
			"requested 20 cpus not multiple cpus per core = 8; what would fit: 16 or 24 cpus"},
		{"more than the machine", twoNodes, "1-15", 18,
			"not enough free physical CPUs: available physical CPUs = 14, requested CPUs = 18, " +
				"CPUs per core = 2; what would fit now: 14 cpus"},
		{"siblings are taken", twoNodes, "1-7", 2,
			"not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 2, " +
				"CPUs per core = 2; no whole core is free"},
		{"the one odd core is taken", oneOffline, "2-7,10-15", 3,
			"not enough free physical CPUs: available physical CPUs = 12, requested CPUs = 3, " +
				"CPUs per core = 2; " +
				"what would fit now: 2 or 4 cpus"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := cpumanager.Options{FullPCPUsOnly: true}
			s := newStaticWith(t, c.machine.machine(t), cpus(t, "0"), o)
			_, err := s.Choose(cpus(t, c.free), cpuset.New(), c.n, anywhere)
			var alignment *cpumanager.SMTAlignmentError
			if !errors.As(err, &alignment) || err.Error() != prefix+c.want {
				t.Errorf("got  %v\nwant %s", err, prefix+c.want)
			}
			if alignment.Reason() != "SMTAlignmentError" {
				t.Errorf("reason %s", alignment.Reason())
			}
		})
	}
}

// CheckAlignment leaves a plain shortage of CPUs to the merge of hints.
func TestCheckAlignment(t *testing.T) {
	whole := cpumanager.Options{FullPCPUsOnly: true}
	for _, c := range []struct {
		options        cpumanager.Options
		free, reusable string
		n              int
		unaligned      bool
	}{
		{whole, "1-15", "", 4, false},
		{whole, "1-15", "", 3, true},
		{whole, "1-3,12", "", 4, true},
		{whole, "1-3", "9", 4, true},
		{whole, "1-2", "9-10", 4, false},
		{whole, "1-3", "", 4, false},
		{cpumanager.Options{}, "1-15", "", 3, false},
	} {
		s := newStaticWith(t, twoNodes.machine(t), cpus(t, "0"), c.options)
		err := s.CheckAlignment(cpus(t, c.free), cpus(t, c.reusable), c.n)
		if (err != nil) != c.unaligned {
			t.Errorf("%d cpus of %s and %s: %v", c.n, c.free, c.reusable, err)
		}
	}
}
