package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A container has started and is ready when its probes say so. As long as they have not answered,
// what was told of the same run of the container counts.
func TestProbed(t *testing.T) {
	told := func(id string, started, ready bool) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", ContainerID: "sim://" + id, Started: &started, Ready: ready,
		}}}
	}
	both := [2]bool{true, true}
	for name, tc := range map[string]struct {
		has            [2]bool // a startup and a readiness probe
		found          Probed
		previous       v1.PodStatus
		started, ready bool
	}{
		"no probes":                {started: true, ready: true},
		"no answer":                {has: both},
		"not ready yet":            {has: [2]bool{false, true}, started: true},
		"ready, without startup":   {has: [2]bool{false, true}, found: Probed{Readiness: Passes}, started: true, ready: true},
		"started":                  {has: both, found: Probed{Startup: Passes}, started: true},
		"not started":              {has: both, found: Probed{Startup: Fails, Readiness: Passes}},
		"ready":                    {has: both, found: Probed{Startup: Passes, Readiness: Passes}, started: true, ready: true},
		"ready, as was told":       {has: both, previous: told("web", true, true), started: true, ready: true},
		"told of another run":      {has: both, previous: told("web0", true, true)},
		"told, and not any more":   {has: both, previous: told("web", true, true), found: Probed{Readiness: Fails}, started: true},
		"alive says nothing of it": {has: both, found: Probed{Liveness: Passes}},
	} {
		pod := makePod("Always web")
		if c := &pod.Spec.Containers[0]; tc.has[0] {
			c.StartupProbe = &v1.Probe{}
		}
		if tc.has[1] {
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		}
		observed := observe("sandbox web")
		id := observed.Containers[0].ID
		if len(tc.previous.ContainerStatuses) > 0 &&
			tc.previous.ContainerStatuses[0].ContainerID == "sim://web" {
			tc.previous.ContainerStatuses[0].ContainerID = "sim://" + id
		}
		s := Generate(Input{Pod: pod, Previous: tc.previous, Now: at(50), Node: Node{Runtime: "sim"},
			Facts: Facts{Observed: observed, Probed: map[string]Probed{id: tc.found}}})
		c := s.ContainerStatuses[0]
		if *c.Started != tc.started || c.Ready != tc.ready {
			t.Errorf("%s: started %v, ready %v", name, *c.Started, c.Ready)
		}
		if got := conditionOf(s, v1.PodReady).Status == v1.ConditionTrue; got != tc.ready {
			t.Errorf("%s: the pod is ready: %v", name, got)
		}
	}
}

// A sidecar with a startup probe holds what comes after it until that passes.
func TestSidecarStarts(t *testing.T) {
	pod := makePod("Always side+ | web")
	pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	observed := observe("sandbox side")
	id := observed.Containers[0].ID
	for found, want := range map[Answer]int{NoAnswer: 0, Fails: 0, Passes: 1} {
		f := Facts{Observed: observed, Probed: map[string]Probed{id: {Startup: found}}}
		if got := NextInit(pod, f); got != want {
			t.Errorf("%v: next is %d, want %d", found, got, want)
		}
		s := Generate(Input{Pod: pod, Facts: f, Now: at(50)})
		if got := conditionOf(s, v1.PodInitialized).Status; (got == v1.ConditionTrue) != (want == 1) {
			t.Errorf("%v: initialized is %s", found, got)
		}
	}
}
