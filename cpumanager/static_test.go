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

func newStatic(t topologytest.Failer, m *topology.Machine, reserved cpuset.CPUSet) *cpumanager.Static {
	t.Helper()
	return newStaticWith(t, m, reserved, cpumanager.Options{})
}

func newStaticWith(t topologytest.Failer, m *topology.Machine, reserved cpuset.CPUSet,
	o cpumanager.Options) *cpumanager.Static {
	t.Helper()
	s, err := cpumanager.NewStatic(m, reserved, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewStaticRefuses(t *testing.T) {
	g := laptop
	g.offline = []int{7}
	m := g.machine(t)
	_, err := cpumanager.NewStatic(m, cpuset.New(), cpumanager.Options{})
	if !errors.Is(err, cpumanager.ErrNothingReserved) {
		t.Errorf("nothing reserved: %v", err)
	}
	for list, want := range map[string]string{
		"0,99": `the machine has no "99"`, "7": "none of them is online",
	} {
		_, err := cpumanager.NewStatic(m, cpus(t, list), cpumanager.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reserve %s: %v, want %s", list, err, want)
		}
	}
}

// TestOn takes CPUs offline and back, for several machines.
func TestOn(t *testing.T) {
	type state struct{ offline, reserved, free, shared string }
	for _, c := range []struct {
		name, asked string
		strict      bool
		states      []state
	}{
		{"a free CPU", "0,8", false, []state{
			{"", "0,8", "1,3-7,9,11-15", "0-1,3-9,11-15"},
			{"5", "0,8", "1,3-4,6-7,9,11-15", "0-1,3-4,6-9,11-15"},
			{"", "0,8", "1,3-7,9,11-15", "0-1,3-9,11-15"},
		}},
		{"an exclusive CPU stays its owner's", "0,8", false, []state{
			{"10", "0,8", "1,3-7,9,11-15", "0-1,3-9,11-15"},
			{"2,10", "0,8", "1,3-7,9,11-15", "0-1,3-9,11-15"},
		}},
		{"a reserved CPU", "0,8", false, []state{
			{"8", "0", "1,3-7,9,11-15", "0-1,3-7,9,11-15"},
			{"", "0,8", "1,3-7,9,11-15", "0-1,3-9,11-15"},
		}},
		{"all reserved CPUs", "0,8", false, []state{
			{"0,8", "1,9", "3-7,11-15", "1,3-7,9,11-15"},
			{"0", "8", "1,3-7,9,11-15", "1,3-9,11-15"},
			{"0-14", "15", "", "15"},
		}},
		{"the last CPUs, strictly", "0,8", true, []state{
			{"1-7,9-15", "0,8", "", ""},
			{"0-7,9-15", "8", "", ""},
			{"", "0,8", "1,3-7,9,11-15", "1,3-7,9,11-15"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStaticWith(t, twoNodes.machine(t), cpus(t, c.asked),
				cpumanager.Options{StrictReservation: c.strict})
			for _, want := range c.states {
				g := twoNodes
				g.offline = cpus(t, want.offline).List()
				s = s.On(g.machine(t))
				assigned := cpus(t, "2,10")
				got := state{want.offline, s.Reserved().String(), s.Free(assigned).String(),
					s.Shared(assigned).String()}
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if !s.Online().Equals(g.machine(t).Online()) {
					t.Errorf("online: %s", s.Online())
				}
			}
		})
	}
}

func TestAReservedCPUMayBeOfflineAtFirst(t *testing.T) {
	g := laptop
	g.offline = []int{7}
	s := newStatic(t, g.machine(t), cpus(t, "0,7"))
	if got := s.Reserved().String(); got != "0" {
		t.Errorf("reserved while 7 is offline: %s", got)
	}
	if got := s.On(laptop.machine(t)).Reserved().String(); got != "0,7" {
		t.Errorf("reserved once 7 is online: %s", got)
	}
}

// If none of the reserved CPUs is online, the options choose the replacement too.
func TestOnByOptions(t *testing.T) {
	s := newStaticWith(t, twoNodes.machine(t), cpus(t, "0,8"),
		cpumanager.Options{DistributeAcrossCores: true})
	g := twoNodes
	g.offline = []int{0, 8}
	if got := s.On(g.machine(t)).Reserved().String(); got != "1-2" {
		t.Errorf("reserved %s, want 1-2", got)
	}
}

func TestReserved(t *testing.T) {
	spread := cpumanager.Options{DistributeAcrossCores: true}
	even := cpumanager.Options{DistributeAcrossNUMA: true}
	whole := cpumanager.Options{FullPCPUsOnly: true}
	evenWhole := cpumanager.Options{DistributeAcrossNUMA: true, FullPCPUsOnly: true}
	for _, c := range []struct {
		machine   grid
		milliCPU  int64
		options   cpumanager.Options
		want, err string
	}{
		{machine: twoNodes, milliCPU: 0, want: ""},
		{machine: twoNodes, milliCPU: 1, want: "0"},
		{machine: twoNodes, milliCPU: 1000, want: "0"},
		{machine: twoNodes, milliCPU: 1001, want: "0,8"},
		{machine: twoNodes, milliCPU: 2500, want: "0-1,8"},
		{machine: twoNodes, milliCPU: 8000, want: "0-3,8-11"},
		{machine: noSMT, milliCPU: 2000, want: "0-1"},
		{machine: smt4, milliCPU: 4000, want: "0,4,8,12"},
		{machine: twoNodes, milliCPU: 16001, err: "reserve 17 cpus: the machine has 16 online"},
		{machine: twoNodes, milliCPU: -3000, want: ""},
		{machine: twoNodes, milliCPU: 2000, want: "0-1", options: spread},
		{machine: chiplets, milliCPU: 9000, want: "0-8", options: spread},
		{machine: twoNodes, milliCPU: 10000, want: "0-2,4-6,8-9,12-13", options: even},
		{machine: twoNodes, milliCPU: 12000, want: "0-2,4-6,8-10,12-14", options: evenWhole},
		{machine: twoNodes, milliCPU: 11000, want: "0-5,8-12", options: evenWhole},
		{machine: twoNodes, milliCPU: 3000, want: "0-1,8", options: whole},
	} {
		got, err := cpumanager.Reserved(c.machine.machine(t), cpuset.New(), c.milliCPU,
			c.options)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%dm of %v: error %v, want %q", c.milliCPU, c.machine, err, c.err)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%dm of %v: got %q, %v; want %q", c.milliCPU, c.machine, got, err, c.want)
		}
	}
}

func TestPools(t *testing.T) {
	g := twoNodes
	g.offline = []int{15}
	s := newStatic(t, g.machine(t), cpus(t, "0,8"))
	assigned := cpus(t, "1,9,4-7")
	if got := s.Free(assigned).String(); got != "2-3,10-14" {
		t.Errorf("free: %s", got)
	}
	if got := s.Shared(assigned).String(); got != "0,2-3,8,10-14" {
		t.Errorf("shared: %s", got)
	}
	if got := s.Reserved().String(); got != "0,8" {
		t.Errorf("reserved: %s", got)
	}
}

func TestChoose(t *testing.T) {
	offlineSiblings, chipletsOffline := twoNodes, chiplets
	offlineSiblings.offline = []int{9, 10, 11}
	chipletsOffline.offline = []int{17}
	for _, c := range []struct {
		name           string
		machine        grid
		free, reusable string
		n              int
		hint           topology.Hint
		want           string
	}{
		{"nothing", twoNodes, "0-15", "", 0, anywhere, ""},
		{"one thread", twoNodes, "0-15", "", 1, anywhere, "0"},
		{"one core", twoNodes, "0-15", "", 2, anywhere, "0,8"},
		{"core and a half", twoNodes, "0-15", "", 3, anywhere, "0-1,8"},
		{"a node", twoNodes, "0-15", "", 8, anywhere, "0-3,8-11"},
		{"the free node", twoNodes, "1-15", "", 8, anywhere, "4-7,12-15"},
		{"more than a node", twoNodes, "1-15", "", 10, anywhere, "1,4-7,9,12-15"},
		{"all", twoNodes, "0-15", "", 16, anywhere, "0-15"},
		{"the fuller node first", twoNodes, "0-6,8-15", "", 2, anywhere, "4,12"},
		{"started core first", twoNodes, "1-3,8-11", "", 1, anywhere, "8"},
		{"whole core before started core", twoNodes, "1-3,8-11", "", 2, anywhere, "1,9"},
		{"started cores when no other", twoNodes, "0-3,12-15", "", 3, anywhere, "0-2"},
		{"inside the hint", twoNodes, "0-15", "", 4, onNodes(1), "4-5,12-13"},
		{"hint too small", twoNodes, "0-6,8-15", "", 8, onNodes(1), "0,4-6,12-15"},
		{"hint of no node", twoNodes, "0-15", "", 2, topology.Hint{}, "0,8"},
		{"reusable first", twoNodes, "0-15", "5,13", 2, anywhere, "5,13"},
		{"some of the reusable", twoNodes, "0-3", "4-5,12-13", 2, anywhere, "4,12"},
		{"reusable core is completed", twoNodes, "0-4,6-15", "5", 2, anywhere, "5,13"},
		{"reusable node is completed", twoNodes, "0-15", "5,13", 8, anywhere, "4-7,12-15"},
		{"reusable and more of its node", twoNodes, "3,11,6-7,14-15", "5,13", 4, anywhere,
			"5-6,13-14"},
		{"reusable and more of its cache", chiplets, "0,5-7,16,21-23", "4,20", 4, anywhere,
			"4-5,20-21"},
		{"core of the reusable one first", twoNodes, "4,12-13", "5", 3, anywhere, "4-5,13"},
		{"reusable outside the hint comes later", twoNodes, "0-7,9-15", "8", 9, onNodes(1),
			"4-8,12-15"},
		{"socket before nodes", nps4, "0-127", "", 64, anywhere, "0-31,64-95"},
		{"a node of the used socket", nps4, "1-127", "", 16, anywhere, "8-15,72-79"},
		{"a whole cache", nps4, "1-63,65-127", "", 8, onNodes(0), "4-7,68-71"},
		{"smallest cache with room", chiplets, "1-6,8-15,17-22,24-31", "", 6, anywhere,
			"1-3,17-19"},
		{"a cache with room for the odd thread", chiplets, "3,5-7,19,21-23", "", 3, anywhere,
			"5-6,21"},
		{"a thread of the fullest cache", chiplets, "0-5,16-21", "", 1, anywhere, "4"},
		{"large caches first", chiplets, "0,4-7,8-9,16,20-23,24-25", "", 10, anywhere,
			"0,4-7,16,20-23"},
		{"no core is split for a cache", chiplets, "0-3,16-17,19,4,20", "", 4, anywhere,
			"0-1,16-17"},
		{"sockets in a node", cluster, "0-15", "", 4, anywhere, "0-1,8-9"},
		{"single threads", noSMT, "0-15", "", 3, onNodes(2), "8-10"},
		{"four threads", smt4, "1-15", "", 5, onNodes(0), "1,4-5,9,13"},
		{"core without its sibling is whole", offlineSiblings, "0-8,12-15", "", 3, onNodes(0),
			"0-1,8"},
		{"whole cores of two caches", chipletsOffline, "0-1,4,16,20", "", 4, anywhere, "0,4,16,20"},
		{"offline cpus are not picked", offlineSiblings, "0-15", "", 5, onNodes(0), "0-3,8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.machine.machine(t)
			s := newStatic(t, m, cpus(t, "0"))
			got, err := s.Choose(cpus(t, c.free), cpus(t, c.reusable), c.n, c.hint)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestChooseLargestNodeThatFits(t *testing.T) {
	var spec topology.Spec
	for id, node := range []topology.NodeID{0, 0, 1, 1, 1, 1} {
		spec.CPUs = append(spec.CPUs, topology.CPU{
			ID: id, Core: topology.CoreID(id), Node: node, Socket: topology.SocketID(node),
			L3: topology.L3ID(node),
		})
	}
	spec.Nodes = []topology.Node{{ID: 0}, {ID: 1}}
	s := newStatic(t, topologytest.Of(t, spec), cpuset.New(0))
	got, err := s.Choose(cpus(t, "0-5"), cpuset.New(), 4, anywhere)
	if err != nil || got.String() != "2-5" {
		t.Errorf("got %s, %v; want 2-5", got, err)
	}
}

func TestChooseNotEnough(t *testing.T) {
	s := newStatic(t, twoNodes.machine(t), cpus(t, "0"))
	_, err := s.Choose(cpus(t, "1-3,99"), cpus(t, "3-4"), 5, anywhere)
	want := "not enough cpus available to satisfy request: requested=5, available=4"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
