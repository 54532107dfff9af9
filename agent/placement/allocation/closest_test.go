package allocation

import (
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// Two CPUs a node, of which CPU 0 is reserved; node 0 is close to node 2, and node 1 to node 3.
func TestPlanPrefersCloseNodes(t *testing.T) {
	spec := topology.Spec{Name: "four nodes"}
	for node := range 4 {
		n := topology.Node{ID: topology.NodeID(node), Distances: map[topology.NodeID]int{}}
		for other := range 4 {
			n.Distances[topology.NodeID(other)] = []int{10, 20, 12, 20}[(other-node+4)%4]
		}
		spec.Nodes = append(spec.Nodes, n)
		for id := 2 * node; id < 2*node+2; id++ {
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID: id, Node: n.ID, Socket: topology.SocketID(node),
				Core: topology.CoreID(id), L3: topology.L3ID(2 * node),
			})
		}
	}
	m := topologytest.Of(t, spec)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options topology.Options
		want    string
	}{
		"by ids":       {topology.Options{}, "main: cpus 1-3"},
		"by distances": {topology.PreferClosest(m), "main: cpus 1,4-5"},
	} {
		t.Run(name, func(t *testing.T) {
			v := View{
				Machine: m, CPUs: static, Options: test.options,
				Rules: topology.Rules{Policy: topology.Restricted},
				Taken: HoldingsOf(),
			}
			if got := story(v.Plan(podOfContainers("main cpu=3"), nil)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
