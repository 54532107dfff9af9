package status

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Probes decide whether a container has started and is ready. Until they answer, the previous
// status of the same run counts.
func TestProbed(t *testing.T) {
	reported := func(id string, started, ready bool) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", ContainerID: "sim://" + id, Started: &started, Ready: ready,
		}}}
	}
	both, only := [2]bool{true, true}, [2]bool{false, true}
	yes := Probed{Startup: Passes, Readiness: Passes}
	for name, tc := range map[string]struct {
		has      [2]bool // whether it has a startup and a readiness probe
		found    Probed
		previous v1.PodStatus
		want     string
	}{
		"no probes":              {want: "started, ready"},
		"no answer":              {has: both},
		"not ready yet":          {has: only, want: "started"},
		"ready, without startup": {has: only, found: Probed{Readiness: Passes}, want: "started, ready"},
		"started":                {has: both, found: Probed{Startup: Passes}, want: "started"},
		"not started":            {has: both, found: Probed{Startup: Fails, Readiness: Passes}},
		"ready":                  {has: both, found: yes, want: "started, ready"},
		"ready, as was told":     {has: both, previous: reported("web", true, true), want: "started, ready"},
		"told of another run":    {has: both, previous: reported("web0", true, true)},
		"told, and not any more": {has: both, previous: reported("web", true, true),
			found: Probed{Readiness: Fails}, want: "started"},
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
		var got []string
		if *c.Started {
			got = append(got, "started")
		}
		if c.Ready {
			got = append(got, "ready")
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %q, want %s", name, got, tc.want)
		}
		if got := conditionOf(s, v1.PodReady).Status == v1.ConditionTrue; got != c.Ready {
			t.Errorf("%s: the pod is ready: %v", name, got)
		}
	}
}

// A sidecar with a startup probe delays the containers after it until the probe passes.
func TestSidecarStarts(t *testing.T) {
	pod := makePod("Always side~ | web")
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
