package machine

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/topology"
)

// isolatingMachine has eight CPUs; the kernel isolates 1 and 4-6.
func isolatingMachine(t *testing.T) *topology.Machine {
	t.Helper()
	spec := topology.Spec{Nodes: []topology.Node{{ID: 0}}}
	for id := range 8 {
		spec.CPUs = append(spec.CPUs, topology.CPU{
			ID: id, Core: topology.CoreID(id % 4), Isolated: id == 1 || 4 <= id && id <= 6,
		})
	}
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestIsolatedByFlag(t *testing.T) {
	for _, c := range []struct {
		flag, reserved string
		want           string // isolated and reserved, or the error
	}{
		{"", "", "isolated , reserved 0"},
		{"none", "", "isolated , reserved 0"},
		{"auto", "", "isolated 1,4-6, reserved 0"},
		{"auto", "0,4", "isolated 1,5-6, reserved 0,4"},
		{"0-1,4", "", "isolated 0-1,4, reserved 5"},
		{"2-3", "0", "isolated 2-3, reserved 0"},
		{"2-3", "0,2", "--isolated-cpus: CPUs 2 are in reservedSystemCPUs too"},
		{"2-9", "0", `--isolated-cpus 2-9: isolate cpus "2-9": the machine has no "8-9"`},
		{"0-7", "", "reserve 1 cpus: the machine has 0 online that are not isolated"},
		{"some", "", `--isolated-cpus: "some": write none, auto or a list like 2-7,18-23`},
		{"0-4000000000", "", "no machine has a CPU 4000000000"},
	} {
		cfg := &config.Config{}
		cfg.Placement.IsolatedCPUs = c.flag
		cfg.Kubelet.CPUManagerPolicy = "static"
		cfg.Kubelet.ReservedSystemCPUs = c.reserved
		cfg.Kubelet.SystemReserved = map[string]string{"cpu": "1"}
		cfg.Kubelet.MaxPods = 10
		h, err := Of(cfg, isolatingMachine(t))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = "isolated " + h.CPUs.Isolated().String() + ", reserved " + h.CPUs.Reserved().String()
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%s beside %s: %s, want %s", c.flag, c.reserved, got, c.want)
		}
	}
}
