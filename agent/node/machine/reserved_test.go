package machine

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestReservedByOptions: the policy's options decide which CPUs a number of reserved CPUs means.
func TestReservedByOptions(t *testing.T) {
	// The second threads of four cores are 4-7.
	m := topologytest.Machine(t, []topology.Node{{ID: 0}}, 8, func(c *topology.CPU) { c.Core %= 4 })
	reservation := nodestatus.Reservation{
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

// TestIgnoredEviction: pods may request what hard eviction keeps free, where that is ignored.
func TestIgnoredEviction(t *testing.T) {
	m := topologytest.Machine(t, []topology.Node{{ID: 0, MemoryBytes: 8 << 30}}, 1)
	cfg, err := config.FromArgs([]string{"--root-dir=" + t.TempDir(),
		"--eviction-hard=memory.available<1Gi,nodefs.available<10%", "--kube-reserved=memory=1Gi"})
	if err != nil {
		t.Fatal(err)
	}
	for ignore, want := range map[bool]string{false: "6Gi", true: "7Gi"} {
		cfg.IgnoreEviction = ignore
		h, err := Of(cfg, m)
		if err != nil {
			t.Fatal(err)
		}
		memory := h.Allocatable[v1.ResourceMemory]
		if memory.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("ignored: %t: allocatable memory is %s, want %s", ignore, &memory, want)
		}
		const disk = v1.ResourceEphemeralStorage
		capacity, allocatable := h.Capacity[disk], h.Allocatable[disk]
		if less := allocatable.Cmp(capacity) < 0; less == ignore {
			t.Errorf("ignored: %t: of a disk of %s %s are allocatable", ignore, &capacity, &allocatable)
		}
	}
}
