package pods

import (
	"testing"
	"time"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/pods/podworker"
)

// TestBackOffOf: the delays of containers that keep exiting, by gates and configuration.
func TestBackOffOf(t *testing.T) {
	const reduced, fixed = "ReduceDefaultCrashLoopBackOffDecay=true", "KubeletCrashLoopBackOffMax=false"
	for _, tt := range []struct {
		gates   string
		longest time.Duration // the configuration's; 0: not set
		want    podworker.BackOff
	}{
		{"", 0, podworker.BackOff{Initial: 10 * time.Second, Max: 5 * time.Minute}},
		{"", 30 * time.Second, podworker.BackOff{Initial: 10 * time.Second, Max: 30 * time.Second}},
		{"", 4 * time.Second, podworker.BackOff{Initial: 4 * time.Second, Max: 4 * time.Second}},
		{reduced, 0, podworker.BackOff{Initial: time.Second, Max: 5 * time.Minute}},
		{reduced, 4 * time.Second, podworker.BackOff{Initial: time.Second, Max: 4 * time.Second}},
		{reduced, time.Second, podworker.BackOff{Initial: time.Second, Max: time.Second}},
		{fixed, 0, podworker.BackOff{Initial: 10 * time.Second, Max: 5 * time.Minute}},
		{reduced + "," + fixed, 0, podworker.BackOff{Initial: time.Second, Max: time.Minute}},
	} {
		cfg, err := config.FromArgs([]string{"--feature-gates=" + tt.gates})
		if err != nil {
			t.Fatal(err)
		}
		if tt.longest != 0 {
			cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration = tt.longest
		}
		if got := backOffOf(cfg); got != tt.want {
			t.Errorf("gates %q, longest %v: %+v, want %+v", tt.gates, tt.longest, got, tt.want)
		}
	}
}
