package allocation

import (
	"fmt"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// wide is a machine of that many nodes with eight CPUs each, in sockets of four; CPU 0 is
// reserved. Each node has two GPUs, each second one a NIC, and all of them an FPGA.
func wide(t testing.TB, nodes int, policy topology.Policy) View {
	spec := topology.Spec{Name: "wide"}
	devices := map[string][]deviceplugin.Device{}
	for node := range nodes {
		n := topology.Node{ID: topology.NodeID(node), Distances: map[topology.NodeID]int{}}
		for other := range nodes {
			switch {
			case node == other:
				n.Distances[topology.NodeID(other)] = 10
			case node/4 == other/4:
				n.Distances[topology.NodeID(other)] = 12
			default:
				n.Distances[topology.NodeID(other)] = 32
			}
		}
		spec.Nodes = append(spec.Nodes, n)
		for i := range 8 {
			id := 8*node + i
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID: id, Node: n.ID, Socket: topology.SocketID(node / 4),
				Core: topology.CoreID(id &^ 1), L3: topology.L3ID(8 * node),
			})
		}
		for kind, count := range map[string]int{"gpu": 2, "nic": node % 2, "fpga": 1} {
			for i := range count {
				devices["example.com/"+kind] = append(devices["example.com/"+kind], deviceplugin.Device{
					ID: fmt.Sprintf("%s-%d-%d", kind, node, i), Healthy: true,
					Nodes: topology.NewNodeSet(n.ID),
				})
			}
		}
	}
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := View{
		Machine: m, CPUs: static, Policy: policy, Taken: TakenBy(),
		Inventory: deviceplugin.Inventory{Resources: map[string]deviceplugin.Resource{}},
	}
	for name, list := range devices {
		v.Inventory.Resources[name] = deviceplugin.Resource{
			Name: name, Connected: true, Devices: list,
		}
	}
	return v
}

// wideRequests are, on a wide machine, from what one node has to what takes many.
var wideRequests = []string{
	"main cpu=4 gpu=1 nic=1 fpga=1", "main cpu=8 gpu=2 nic=2 fpga=1", "main cpu=9 gpu=4 nic=1 fpga=2",
	"main cpu=64 gpu=16 nic=8 fpga=8", "main cpu=100 gpu=3 nic=5 fpga=9",
}

// BenchmarkPlan is one container from hints to devices and CPUs.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{8, 16, 64} {
		for _, request := range wideRequests {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, request), func(b *testing.B) {
				v, pod := wide(b, nodes, topology.BestEffort), podOfContainers(request)
				for b.Loop() {
					if _, err := v.Plan(pod, nil); err != nil {
						b.Skip(err)
					}
				}
			})
		}
	}
}

// Beyond eight nodes providers cannot offer every set of nodes; what they offer must still meet.
func TestPlanOnManyNodes(t *testing.T) {
	for _, test := range []struct{ pod, nodes string }{
		{"main cpu=4 gpu=1 nic=1 fpga=1", "1"},
		{"main cpu=8 gpu=2 fpga=1", "1"}, // CPU 0 is reserved
		{"main cpu=16 gpu=4 fpga=2", "1-2"},
		{"main cpu=32 gpu=8 fpga=4", "1-4"},
		{"main cpu=64 gpu=16 fpga=8", "1-8"},
		{"main gpu=10 nic=5", "1,3,5,7,9"},
		{"main gpu=2 nic=2", ""}, // one node, and two
	} {
		v := wide(t, 64, topology.Restricted)
		p, err := v.Plan(podOfContainers(test.pod), nil)
		if (err == nil) != (test.nodes != "") {
			t.Errorf("%s: %v", test.pod, err)
		}
		for _, d := range p.Decisions {
			if got := d.Merged.Hint.Nodes.String(); err == nil && got != test.nodes {
				t.Errorf("%s: placed on %s, want %s", test.pod, got, test.nodes)
			}
			for _, o := range d.Offers {
				if len(o.Hints) > 2200 {
					t.Errorf("%s: %d hints for %s", test.pod, len(o.Hints), o.Resource)
				}
			}
		}
		nodes, err := topology.ParseNodeSet(test.nodes)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Machine.NodesOf(p.Pod.Containers["main"].CPUs).SubsetOf(nodes) {
			t.Errorf("%s: CPUs on other nodes: %s", test.pod, story(p, err))
		}
	}
}
