package metrics

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

func TestReasonLabel(t *testing.T) {
	for _, tt := range []struct {
		reason string
		short  v1.ResourceName
		want   string
	}{
		{"SMTAlignmentError", "", "SMTAlignmentError"},
		{"TopologyAffinityError", "", "TopologyAffinityError"},
		{"UnexpectedAdmissionError", "", "UnexpectedAdmissionError"},
		{"OutOfcpu", v1.ResourceCPU, "OutOfcpu"},
		{"OutOfexample.com/gpu", "example.com/gpu", "OutOfExtendedResources"},
		{"OutOfIsolatedCPUs", "", "OutOfIsolatedCPUs"},
		{"VolumeAttachmentLimitExceeded", "", "VolumeAttachmentLimitExceeded"},
		{"Whatever", "", "Other"},
	} {
		if got := reasonLabel(tt.reason, tt.short); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.reason, got, tt.want)
		}
	}
}

func TestExclusiveCPUsPerNode(t *testing.T) {
	machine := topologytest.Machine(t, []topology.Node{{ID: 0}, {ID: 2}}, 8, func(c *topology.CPU) {
		c.Node = topology.NodeID(c.ID / 4 * 2)
	})
	m, registry := fresh(t)
	m.CPUs(machine, cpuset.New(1, 2, 3), cpuset.New(0, 4, 5, 6, 7))
	m.CPUs(machine, cpuset.New(1, 7), cpuset.New(0, 2, 3, 4, 5, 6))
	const name = "kubelet_cpu_manager_allocation_per_numa"
	want := "# HELP " + name +
		" [ALPHA] CPUs that containers have for themselves, by NUMA node.\n" +
		"# TYPE " + name + " gauge\n" +
		name + `{numa_node="0"} 1` + "\n" + name + `{numa_node="2"} 1` + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
