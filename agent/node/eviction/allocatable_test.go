package eviction

import (
	"slices"
	"testing"

	"github.com/numalet/numalet/agent/node/config"
)

// Only where pods are limited to what they may request, and that is less than they may use, has the limit
// of all pods a threshold. That of the machine's memory stays.
func TestThresholds(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		limits bool
	}{
		"usually":            {nil, true},
		"pods have no limit": {[]string{"--enforce-node-allocatable=none"}, false},
		"ignored":            {[]string{"--experimental-allocatable-ignore-eviction"}, false},
	} {
		cfg, err := config.FromArgs(append([]string{"--root-dir=" + t.TempDir()}, tc.args...))
		if err != nil {
			t.Fatal(err)
		}
		all, err := Thresholds(cfg)
		has := func(signal Signal) bool {
			return slices.ContainsFunc(all, func(one Threshold) bool { return one.Signal == signal })
		}
		if err != nil || !has(MemoryAvailable) || has(AllocatableMemoryAvailable) != tc.limits {
			t.Errorf("%s: %v, %v", name, all, err)
		}
		if want := len(cfg.Kubelet.EnforceNodeAllocatable); want == 0 {
			t.Errorf("%s: the settings have changed", name)
		}
	}
}
