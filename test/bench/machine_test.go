package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

const nodeMemory = 64 << 30

// invent makes a machine of two sockets (one, if it has one node) with two threads per core, eight
// threads per last-level cache, and distances 10, 12 and 32.
func invent(b *testing.B, nodes, cpus int) *topology.Machine {
	b.Helper()
	spec := topology.Spec{Name: fmt.Sprintf("%d nodes, %d CPUs", nodes, cpus)}
	perSocket := (nodes + 1) / 2
	for id := range nodes {
		node := topology.Node{
			ID: topology.NodeID(id), MemoryBytes: nodeMemory, Distances: map[topology.NodeID]int{},
		}
		for other := range nodes {
			switch {
			case id == other:
				node.Distances[topology.NodeID(other)] = 10
			case id/perSocket == other/perSocket:
				node.Distances[topology.NodeID(other)] = 12
			default:
				node.Distances[topology.NodeID(other)] = 32
			}
		}
		spec.Nodes = append(spec.Nodes, node)
	}
	for core := range cpus / 2 {
		node := core * nodes / (cpus / 2)
		for thread := range 2 {
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID: core + thread*cpus/2, Node: topology.NodeID(node),
				Socket: topology.SocketID(node / perSocket),
				Core:   topology.CoreID(core), L3: topology.L3ID(core / 4 * 4),
			})
		}
	}
	m, err := topology.NewMachine(spec)
	must(b, err)
	return m
}

// question is one container's request on a machine that is partly in use.
type question struct {
	nodes  topology.NodeSet
	offers [][]topology.ResourceHints
}

// ask has the providers offer: CPUs, memory and as many kinds of devices as are left of their
// number, two devices of each kind on each node. Half of everything is taken.
func ask(b *testing.B, m *topology.Machine, providers int, r *rand.Rand) question {
	b.Helper()
	const taken = 0.5
	cpus, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	must(b, err)
	mem, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1 << 30}})
	must(b, err)
	free := cpus.Free(some(m.Online(), taken, r))
	want := uint64(1+r.IntN(3)) * nodeMemory / 2
	q := question{nodes: m.NodeSet(), offers: [][]topology.ResourceHints{
		{{Resource: "cpu", Hints: cpus.Supply(free, cpuset.New(), 1+r.IntN(8)).Hints()}},
		{{Resource: "memory", Hints: mem.Supply(nil, nil,
			map[v1.ResourceName]uint64{v1.ResourceMemory: want}).Hints()}},
	}}
	for kind := range providers - 2 {
		resource := devicemanager.Resource{
			Name: fmt.Sprintf("example.com/kind-%d", kind), Connected: true,
		}
		for i, node := range append(m.NodeSet().IDs(), m.NodeSet().IDs()...) {
			if r.Float64() >= taken {
				resource.Devices = append(resource.Devices, &devicemanager.Device{
					ID: fmt.Sprint(i), Healthy: true, Nodes: topology.NewNodeSet(node),
				})
			}
		}
		req := devicemanager.Request{Resource: resource, N: 1 + r.IntN(2)}
		supply, _ := devicemanager.Supply(q.nodes, req) // all devices have nodes
		q.offers = append(q.offers, []topology.ResourceHints{
			{Resource: resource.Name, Hints: supply.Hints()},
		})
	}
	return q
}

// some takes a share of the CPUs at random.
func some(cpus cpuset.CPUSet, share float64, r *rand.Rand) cpuset.CPUSet {
	var out []int
	for _, id := range cpus.List() {
		if r.Float64() < share {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}
