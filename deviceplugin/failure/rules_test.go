package failure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Rules are found by resource, then by driver; what cannot be meant is told with what to write.
func TestRules(t *testing.T) {
	var r Rules
	for _, text := range []string{"example.com/gpu=fail-pod:2m", "gpu.example.com=restart-container",
		"example.com/nic=none", "event:0s"} {
		if err := r.Add(text, time.Minute); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for want, d := range map[Rule]Device{
		{FailPod, 2 * time.Minute}:      {Resource: "example.com/gpu", Driver: "gpu.example.com"},
		{RestartContainer, time.Minute}: {Resource: "claim gpus", Driver: "gpu.example.com"},
		{None, time.Minute}:             {Resource: "example.com/nic"},
		{Event, 0}:                      {Resource: "claim nics", Driver: "nic.example.com"},
	} {
		if got := r.Of(d); got != want {
			t.Errorf("%+v: %+v, want %+v", d, got, want)
		}
	}
	if diff := cmp.Diff(Rule{Action: None}, Rules{}.Of(Device{Resource: "example.com/gpu"})); diff != "" {
		t.Errorf("without rules: %s", diff)
	}
	for text, want := range map[string]string{
		"":                              `"" is no action; write none, event, restart-container or fail-pod`,
		"kill":                          `"kill" is no action`,
		"example.com/gpu=":              `"" is no action`,
		"example.com/gpu=fail-pod:":     `the hold-off "" is no time from 0 to 24h, such as 90s`,
		"example.com/gpu=fail-pod:-1s":  "no time from 0 to 24h",
		"example.com/gpu=fail-pod:25h":  "no time from 0 to 24h",
		"=fail-pod":                     `"" is neither an extended resource`,
		"Gpu=fail-pod":                  `"Gpu" is neither an extended resource, such as example.com/gpu, nor a driver`,
		"a/b/c=fail-pod":                `"a/b/c" is no name of an extended resource`,
		"example.com/gpu=none":          "example.com/gpu has two rules; keep one",
		"fail-pod":                      "second rule without a name",
		strings.Repeat("x", 300) + "=x": "is no action",
	} {
		if err := r.Add(text, time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
