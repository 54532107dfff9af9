package machine

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/topology"
)

// TestReservedByOptions: the policy's options decide which CPUs a number of reserved CPUs means.
func TestReservedByOptions(t *testing.T) {
	spec := topology.Spec{Nodes: []topology.Node{{ID: 0}}}
	for id := range 8 { // the second threads of four cores are 4-7
		spec.CPUs = append(spec.CPUs, topology.CPU{ID: id, Core: topology.CoreID(id % 4)})
	}
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	reservation := node.Reservation{
		Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")},
	}
	for option, want := range map[string]string{
		"full-pcpus-only": "0,4", "distribute-cpus-across-cores": "0-1",
	} {
		cfg := &config.Config{}
		cfg.Kubelet.CPUManagerPolicyOptions = map[string]string{option: "true"}
		static, err := staticPolicy(cfg, m, reservation)
		if err != nil || static.Reserved().String() != want {
			t.Errorf("%s: %v, %v; want %s", option, static.Reserved(), err, want)
		}
	}
}
