package allocation

import (
	"fmt"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// wide is a machine of that many nodes with eight CPUs each, in sockets of four; CPU 0 is
// reserved. Each node has two GPUs, each second one a NIC, and all of them an FPGA.
func wide(t testing.TB, nodes int, policy topology.Policy) View {
	spec := topology.Spec{Name: "wide"}
	devices := map[string][]*devicemanager.Device{}
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
				devices["example.com/"+kind] = append(devices["example.com/"+kind],
					&devicemanager.Device{
						ID: fmt.Sprintf("%s-%d-%d", kind, node, i), Healthy: true,
						Nodes: topology.NewNodeSet(n.ID),
					})
			}
		}
	}
	m := topologytest.Of(t, spec)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := View{
		Machine: m, CPUs: static, Rules: topology.Rules{Policy: policy}, Taken: HoldingsOf(),
		Inventory: devicemanager.Inventory{Resources: map[string]devicemanager.Resource{}},
	}
	for name, list := range devices {
		v.Inventory.Resources[name] = devicemanager.Resource{
			Name: name, Connected: true, Devices: list,
		}
	}
	return v
}

// wideRequests are, on a wide machine, from what one node has to what takes many.
var wideRequests = []string{
	"main cpu=4 gpu=1 nic=1 memory=4Gi", "main cpu=8 gpu=2 nic=2 memory=7Gi",
	"main cpu=9 gpu=4 nic=1 memory=15Gi", "main cpu=64 gpu=16 nic=8 memory=60Gi",
	"main cpu=100 gpu=3 nic=5 memory=80Gi",
}

// BenchmarkPlan is one container from hints to devices, CPUs and memory.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{8, 16, 64} {
		for _, request := range wideRequests {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, request), func(b *testing.B) {
				v := withMemory(b, wide(b, nodes, topology.BestEffort), 10, 2)
				pod := podOfContainers(request)
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
		if !v.Machine.NodesOf(p.Pod.Containers["main"].CPUs()).SubsetOf(nodes) {
			t.Errorf("%s: CPUs on other nodes: %s", test.pod, story(p, err))
		}
	}
}

// usedUp is a wide machine with memory of which others have taken at random.
type usedUp struct {
	view     View
	freeCPUs []int
	freeGPUs []int
	memory   []bool // nobody uses it
}

func drawUsedUp(t *rapid.T, tb testing.TB, nodes int) usedUp {
	u := usedUp{view: withMemory(t, wide(tb, nodes, topology.Restricted), 10, 2)}
	taken, gpus, blocks := []int{}, []string{}, []string{}
	for node := range nodes {
		n, g := rapid.IntRange(0, 3).Draw(t, "cpus"), rapid.IntRange(0, 1).Draw(t, "gpus")
		for i := range n {
			taken = append(taken, 8*node+7-i)
		}
		for i := range g {
			gpus = append(gpus, fmt.Sprintf("gpu-%d-%d", node, i))
		}
		used := rapid.IntRange(0, 4).Draw(t, "memory") == 0
		if used {
			blocks = append(blocks, fmt.Sprintf("%d 1Gi", node))
		}
		if node == 0 {
			n++ // CPU 0 is reserved
		}
		u.freeCPUs, u.freeGPUs = append(u.freeCPUs, 8-n), append(u.freeGPUs, 2-g)
		u.memory = append(u.memory, !used)
	}
	other := holds("other", blocks...)
	other.Containers["own"] = Container{
		CPUs(cpuset.New(taken...)), Devices{{Resource: "example.com/gpu", IDs: gpus}},
	}
	u.view.Taken = HoldingsOf(other)
	return u
}

// aligned tries every set: is there one that no resource could do with fewer nodes than, were the
// machine empty, and that has room for all of them?
func (u usedUp) aligned(cpus, gpus, gibs int) bool {
	width := (cpus + 7) / 8
	if (gpus+1)/2 != width || gibs > 0 && (gibs+7)/8 != width {
		return false
	}
	found := false
	topology.Combinations(len(u.memory), width, func(set []int) bool {
		c, g, m, alone := 0, 0, 0, true
		for _, node := range set {
			c, g, m = c+u.freeCPUs[node], g+u.freeGPUs[node], m+8
			if node == 0 {
				m--
			}
			if gibs > 0 && !u.memory[node] {
				alone = false
				if width == 1 && gibs <= m-1 { // beside who is there
					alone, m = true, m-1
				}
			}
		}
		found = c >= cpus && g >= gpus && (gibs == 0 || alone && m >= gibs)
		return !found
	})
	return found
}

// On many nodes, too, a pod is admitted under restricted if there is any set of nodes for it.
func TestNoPlaceIsMissedOnManyNodes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes, most := 16, 8
		if rapid.IntRange(0, 4).Draw(rt, "large") == 0 {
			nodes, most = 64, 3
		}
		u := drawUsedUp(rt, t, nodes)
		width := rapid.IntRange(1, most).Draw(rt, "width")
		cpus := 8*(width-1) + rapid.IntRange(1, 7).Draw(rt, "more cpus")
		gpus := 2*(width-1) + rapid.IntRange(1, 2).Draw(rt, "more gpus")
		gibs := 0
		text := fmt.Sprintf("main cpu=%d gpu=%d memory=1Mi", cpus, gpus)
		u.view.Memory = nil
		if rapid.Bool().Draw(rt, "with memory") {
			gibs = 8*(width-1) + rapid.IntRange(1, 6).Draw(rt, "more memory")
			u = drawUsedUp(rt, t, nodes)
			text = fmt.Sprintf("main cpu=%d gpu=%d memory=%dGi", cpus, gpus, gibs)
		}
		plan, err := u.view.Plan(podOfContainers(text), nil)
		if want := u.aligned(cpus, gpus, gibs); (err == nil) != want {
			rt.Fatalf("%s: %s; naively there is a place: %v", text, story(plan, err), want)
		}
	})
}
