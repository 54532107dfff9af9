package machine

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/agent/node/config"
)

// TestDriverCPUs: CPUs of drivers are nobody else's; reserved CPUs that a number means are others.
func TestDriverCPUs(t *testing.T) {
	for _, c := range []struct{ flag, reserved, isolated, want string }{
		{"0-1", "", "none", "lent 0-1, reserved 4, isolated "},
		{"1,4", "", "auto", "lent 1,4, reserved 0, isolated 5-6"},
		{"2-3", "0", "none", "lent 2-3, reserved 0, isolated "},
		{"2-3", "0,2", "none", `--dra-cpus 2-3: cpus "2" are reserved for the system too`},
		{"2-3", "0", "3", `--dra-cpus 2-3: cpus "3" are isolated too`},
		{"2-9", "0", "none", `the machine has no cpus "8-9"`},
		{"x", "0", "none", `--dra-cpus: "x": write a list like 8-15`},
	} {
		cfg := &config.Config{}
		cfg.Placement.DriverCPUs, cfg.Placement.IsolatedCPUs = c.flag, c.isolated
		cfg.Kubelet.CPUManagerPolicy = "static"
		cfg.Kubelet.ReservedSystemCPUs = c.reserved
		cfg.Kubelet.SystemReserved = map[string]string{"cpu": "1"}
		cfg.Kubelet.MaxPods = 10
		h, err := Of(cfg, isolatingMachine(t))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = "lent " + h.CPUs.Lent().String() + ", reserved " + h.CPUs.Reserved().String() +
				", isolated " + h.CPUs.Isolated().String()
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%s beside %s and %s: %s, want %s", c.flag, c.reserved, c.isolated, got, c.want)
		}
	}
}
