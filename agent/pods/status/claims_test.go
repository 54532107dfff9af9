package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod has not ended as long as drivers have devices for it, however it ended.
func TestPhaseWhileClaimsAreHeld(t *testing.T) {
	for name, test := range map[string]struct {
		pod, observed string
		was           v1.PodPhase
		stop          Stopping
		held, end     v1.PodPhase
	}{
		"done":    {"Never job", "sandbox! job=0", v1.PodRunning, Stopping{}, "Running", "Succeeded"},
		"failed":  {"Never job", "sandbox! job=1", v1.PodRunning, Stopping{}, "Running", "Failed"},
		"unknown": {"Never job", "sandbox! job=1", "", Stopping{}, "Running", "Failed"},
		"evicted": {"Always web", "sandbox! web=143", v1.PodRunning,
			Stopping{Terminating: true, Why: Reason{"Evicted", "m"}}, "Running", "Failed"},
		"deleted before it ran": {"Always web", "", v1.PodPending, Stopping{Terminating: true},
			"Pending", "Failed"},
		"ended before": {"Never job", "sandbox! job=1", v1.PodFailed, Stopping{}, "Failed", "Failed"},
		"runs":         {"Always web", "sandbox web", v1.PodRunning, Stopping{}, "Running", "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Pod: makePod(test.pod), Facts: Facts{Observed: observe(test.observed)}, Now: t0,
				Stop: test.stop, Previous: v1.PodStatus{Phase: test.was}}
			in.Stop.Holds = true
			if got := Generate(in).Phase; got != test.held {
				t.Errorf("while it holds claims: %s, want %s", got, test.held)
			}
			in.Previous.Phase, in.Stop.Holds = test.held, false
			if got := Generate(in).Phase; got != test.end {
				t.Errorf("afterwards: %s, want %s", got, test.end)
			}
		})
	}
}

// Conditions of a pod that only waits for its claims are those of its end, as the kubelet's.
func TestConditionsWhileClaimsAreHeld(t *testing.T) {
	for observed, want := range map[string]string{
		"sandbox! job=0": "PodCompleted", "sandbox! job=1": "PodFailed", "sandbox job": "",
	} {
		in := Input{Pod: makePod("Never job"), Facts: Facts{Observed: observe(observed)}, Now: t0,
			Previous: v1.PodStatus{Phase: v1.PodRunning}}
		in.Stop.Holds = true
		got := Generate(in)
		for _, of := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
			if c := conditionOf(got, of); got.Phase != v1.PodRunning || c.Reason != want {
				t.Errorf("%s: %s, %+v, want %q", observed, got.Phase, c, want)
			}
		}
	}
}
