package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/cpuset"
)

// smallMachine has two sockets, one with SMT, an offline CPU, a gap in the node ids and a node with
// memory only.
func smallMachine() Spec {
	return Spec{
		Name: "small",
		Nodes: []Node{
			{ID: 70, MemoryBytes: 8 << 30},
			{ID: 0, MemoryBytes: 4 << 30, Distances: map[NodeID]int{0: 10, 2: 21, 70: 30},
				HugePages: []HugePages{{PageBytes: 2 << 20, Count: 4}}},
			{ID: 2},
		},
		CPUs: []CPU{
			{ID: 9, Node: 2, Socket: 1, Core: 9, L3: 9},
			{ID: 0, Node: 0, Socket: 0, Core: 0, L3: 0},
			{ID: 1, Node: 0, Socket: 0, Core: 1, L3: 1},
			{ID: 4, Node: 0, Socket: 0, Core: 0, L3: 0},
			{ID: 5, Node: 0, Socket: 0, Core: 1, L3: 1, Offline: true},
			{ID: 8, Node: 2, Socket: 1, Core: 8, L3: 9},
		},
		PCI: []PCIDevice{
			{Address: "0000:b1:00.0", Node: 2}, {Address: "0000:3b:00.0", Node: NoNode},
		},
	}
}

func mustMachine(t *testing.T, spec Spec) *Machine {
	t.Helper()
	m, err := NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMachineAnswers(t *testing.T) {
	m := mustMachine(t, smallMachine())
	tests := []struct {
		what      string
		got, want any
	}{
		{"nodes", m.NodeSet(), NewNodeSet(0, 2, 70)},
		{"memory nodes", m.MemoryNodes(), NewNodeSet(0, 70)},
		{"memory", m.MemoryBytes(), uint64(12 << 30)},
		{"online", m.Online().String(), "0-1,4,8-9"},
		{"offline", m.Offline().String(), "5"},
		{"node 0", m.CPUsOfNode(0).String(), "0-1,4"},
		{"node 70", m.CPUsOfNode(70).String(), ""},
		{"nodes 0, 2 and one that is not there", m.CPUsOfNodes(NewNodeSet(0, 2, 99)).String(),
			"0-1,4,8-9"},
		{"socket 1", m.CPUsOfSocket(1).String(), "8-9"},
		{"core 0", m.CPUsOfCore(0).String(), "0,4"},
		{"core 1, half offline", m.CPUsOfCore(1).String(), "1"},
		{"L3 9", m.CPUsOfL3(9).String(), "8-9"},
		{"sockets", m.Sockets(), []SocketID{0, 1}},
		{"cores", m.Cores(), []CoreID{0, 1, 8, 9}},
		{"L3s", m.L3s(), []L3ID{0, 1, 9}},
		{"threads", m.ThreadsPerCore(), 2},
		{"nodes of CPUs", m.NodesOf(cpuset.New(4, 9, 1234)), NewNodeSet(0, 2)},
		{"distance given", m.Distance(0, 2), 21},
		{"distance not given", m.Distance(2, 0), 20},
		{"distance to itself", m.Distance(70, 70), 10},
		{"first device", m.PCI()[0].Address, "0000:3b:00.0"},
		{"name", m.Name(), "small"},
	}
	for _, tt := range tests {
		if !cmp.Equal(tt.got, tt.want, cmp.AllowUnexported(NodeSet{})) {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
	if c, ok := m.CPU(5); !ok || !c.Offline {
		t.Errorf("cpu 5: %+v, %v", c, ok)
	}
	if c, ok := m.CPU(6); ok {
		t.Errorf("cpu 6: %+v", c)
	}
}

func TestMachineSpecRoundTrip(t *testing.T) {
	m := mustMachine(t, smallMachine())
	again := mustMachine(t, m.Spec())
	if diff := cmp.Diff(m.Spec(), again.Spec()); diff != "" {
		t.Error(diff)
	}
	order := cmpopts.SortSlices(func(a, b any) bool {
		return fmt.Sprintf("%+v",
			a) < fmt.Sprintf("%+v", b)
	})
	if diff := cmp.Diff(smallMachine(), m.Spec(), order, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// Changes to the spec or to returned values do not change a machine.
func TestMachineIsImmutable(t *testing.T) {
	spec := smallMachine()
	m := mustMachine(t, spec)
	before := m.Spec()
	spec.Nodes[1].Distances[2] = 99
	spec.Nodes[1].HugePages[0].Count = 99
	spec.PCI[0].Node = 99
	got := m.Spec()
	got.Nodes[0].Distances[2] = 99
	got.Nodes[0].HugePages[0].Count = 99
	got.CPUs[0].Node = 99
	m.Nodes()[0].HugePages[0].Count = 99
	m.PCI()[0].Address = "x"
	if diff := cmp.Diff(before, m.Spec()); diff != "" {
		t.Error(diff)
	}
}

func TestNewMachineRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *Spec)
		want   []string
	}{
		{"nothing", func(s *Spec) { *s = Spec{Name: "x"} },
			[]string{`machine "x"`, "no online cpu"}},
		{"all offline", func(s *Spec) {
			for i := range s.CPUs {
				s.CPUs[i].Offline = true
			}
		}, []string{"no online cpu"}},
		{"node twice", func(s *Spec) { s.Nodes[0].ID = 2 }, []string{"node 2 is listed twice"}},
		{"negative node", func(s *Spec) { s.Nodes[0].ID = -1 },
			[]string{"node -1: the id is negative"}},
		{"cpu twice", func(s *Spec) { s.CPUs[0].ID = 4 }, []string{"cpu 4 is listed twice"}},
		{"negative cpu", func(s *Spec) { s.CPUs[0].ID = -4 },
			[]string{"cpu -4: the id is negative"}},
		{"cpu on no node", func(s *Spec) { s.CPUs[0].Node = 5 },
			[]string{"cpu 9 is on node 5, which does not exist"}},
		{"core on two sockets", func(s *Spec) { s.CPUs[3].Socket = 1 },
			[]string{"core 0 is on sockets 0 and 1"}},
		{"device twice", func(s *Spec) { s.PCI[0].Address = s.PCI[1].Address },
			[]string{"PCI device 0000:3b:00.0 is listed twice"}},
		{"device on no node", func(s *Spec) { s.PCI[0].Node = 5 },
			[]string{"PCI device 0000:b1:00.0 is on node 5"}},
		{"all that is wrong", func(s *Spec) { s.CPUs[0].Node, s.PCI[0].Node = 5, 6 },
			[]string{"cpu 9", "0000:b1:00.0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := smallMachine()
			tt.change(&spec)
			m, err := NewMachine(spec)
			if err == nil {
				t.Fatalf("made %+v", m.Spec())
			}
			missing := slices.DeleteFunc(tt.want,
				func(s string) bool { return strings.Contains(err.Error(), s) })
			if len(missing) > 0 {
				t.Errorf("error %q lacks %q", err, missing)
			}
		})
	}
}

// An unknown place of an offline CPU is no error.
func TestOfflineCPUsMayBeAnywhere(t *testing.T) {
	spec := smallMachine()
	spec.CPUs = append(spec.CPUs,
		CPU{ID: 99, Node: NoNode, Socket: -1, Core: 99, L3: 99, Offline: true})
	m := mustMachine(t, spec)
	if got := m.NodesOf(cpuset.New(99)); !got.IsEmpty() {
		t.Errorf("cpu 99 is on nodes %s", got)
	}
	if got := m.Offline().String(); got != "5,99" {
		t.Errorf("offline %s", got)
	}
}
