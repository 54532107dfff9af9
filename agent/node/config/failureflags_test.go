package config

import (
	"testing"
	"time"

	"github.com/numalet/numalet/deviceplugin/failure"
)

// Policies without a hold-off have that of the other flag; without policies nothing is done.
func TestFailurePolicies(t *testing.T) {
	gpu, claim := failure.Device{Resource: "example.com/gpu"}, failure.Device{Driver: "gpu.example.com"}
	for _, tc := range []struct {
		args       []string
		gpu, claim failure.Rule
	}{
		{nil, failure.Rule{Action: failure.None}, failure.Rule{Action: failure.None}},
		{[]string{"--device-failure-policy=example.com/gpu=fail-pod,gpu.example.com=event:5s",
			"--device-failure-hold-off=2m"}, failure.Rule{Action: failure.FailPod, HoldOff: 2 * time.Minute},
			failure.Rule{Action: failure.Event, HoldOff: 5 * time.Second}},
	} {
		c, err := FromArgs(tc.args)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := c.Failures.Rules()
		if err != nil || rules.Of(gpu) != tc.gpu || rules.Of(claim) != tc.claim ||
			rules.Pause != time.Minute {
			t.Errorf("%q: %+v, %v", tc.args, rules, err)
		}
		if got := c.Unhonoured(); len(got) > 0 {
			t.Errorf("%q have no effect", got)
		}
	}
}
