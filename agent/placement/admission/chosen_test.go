package admission

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// choosing has GPUs chosen for the pod: "d0,d1".
func choosing(p *v1.Pod, ids string) *v1.Pod {
	p.Spec.SchedulerName, p.Annotations = "chooser", map[string]string{"example.com/gpu_container-main": ids}
	return p
}

// A dry run says what admission would.
func TestDryRunOfChosenDevices(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 4)
		p.prefers("example.com/gpu")
		d := open(t, dir, p, func(c *Config) {
			c.Rules.Choosers, c.Handlers = topology.Choosers{{Scheduler: "chooser"}}, []decide.Handler{handlers.Placement}
		})
		defer d.stop()
		d.queue.Submit(choosing(pod("a", "example.com/gpu=1"), "d3"), false)
		d.expect("a Admit")
		s, err := d.queue.Snapshot(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for choice, want := range map[string]string{
			"d1": "Admit", "d3": "Reject ChosenDeviceUnavailable", "d1,d2": "Reject DeviceChoiceInvalid",
		} {
			did := s.DryRun(choosing(pod("b", "example.com/gpu=1"), choice), allocation.PodClaims{}, nil)
			if got := strings.TrimSpace(string(did.Outcome) + " " + did.Reason); got != want ||
				len(did.Unasked) > 0 {
				t.Errorf("%s: %s, %s, unasked %q", choice, got, did.Message, did.Unasked)
			}
			record := did.Record()
			if did.Outcome == decide.Admit && !strings.Contains(record.Text(), "(gets d1)") ||
				did.Reason == "ChosenDeviceUnavailable" && !strings.Contains(record.Text(),
					"without the annotation example.com/gpu_container-main") {
				t.Error(record.Text())
			}
		}
	})
}
