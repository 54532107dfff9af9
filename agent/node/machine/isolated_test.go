package machine

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// isolatingMachine has eight CPUs; the kernel isolates 1 and 4-6.
func isolatingMachine(t *testing.T) *topology.Machine {
	t.Helper()
	return topologytest.Machine(t, []topology.Node{{ID: 0}}, 8, func(c *topology.CPU) {
		c.Core, c.Isolated = c.Core%4, c.ID == 1 || 4 <= c.ID && c.ID <= 6
	})
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
