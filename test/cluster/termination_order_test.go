package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// unit is the unit of all times here: long compared with a stop.
const unit = 6 * time.Second

// ending is a pod whose containers end at different times.
type ending struct {
	grace   int64 // seconds
	scripts map[string]string
	set     func(*v1.PodSpec)
	// want is when each container is stopped, in units after the first.
	want map[string]int
}

// endings returns such pods, each with a container main and sidecars first and last.
func endings() map[string]ending {
	return map[string]ending{
		"hooks": {grace: 60, want: map[string]int{"main": 0, "last": 0, "first": 1},
			set: func(s *v1.PodSpec) {
				lifecycle(&s.InitContainers[0]).PreStop = &v1.LifecycleHandler{
					Sleep: &v1.SleepAction{Seconds: int64(unit / time.Second)}}
			}},
		"slow": {grace: 60, want: map[string]int{"main": 0, "last": 1, "first": 2},
			scripts: map[string]string{"main": "term-after=6s", "last": "term-after=6s"}},
		"late": {grace: 6, want: map[string]int{"main": 0, "last": 1, "first": 1},
			scripts: map[string]string{"main": "term=ignore", "last": "term=ignore",
				"first": "term=ignore"}},
		"debugged": {grace: 6, want: map[string]int{"main": 0, "debug": 0, "last": 0, "first": 0},
			scripts: map[string]string{"debug": "term=ignore"},
			set: func(s *v1.PodSpec) {
				s.EphemeralContainers = []v1.EphemeralContainer{{
					EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug",
						Image: rootImage}}}
			}},
		"begun": {grace: 60, want: map[string]int{"init": 0, "last": 0, "first": 0},
			scripts: map[string]string{"init": "term-after=6s"},
			set: func(s *v1.PodSpec) {
				s.InitContainers = append(s.InitContainers,
					v1.Container{Name: "init", Image: rootImage})
			}},
	}
}

func (e ending) pod(name string) *v1.Pod {
	pod := ordinaryPod(name)
	for container, script := range e.scripts {
		pod.Annotations[crisim.AnnotationPrefix+container] = script
	}
	pod.Spec.TerminationGracePeriodSeconds = &e.grace
	for _, name := range []string{"first", "last"} {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: name,
			Image: rootImage, RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)})
	}
	if e.set != nil {
		e.set(&pod.Spec)
	}
	return pod
}

// TestTerminationOrder: the containers of a pod are stopped when the stock kubelet stops them.
func TestTerminationOrder(t *testing.T) {
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			s := newSide(t, agent)
			for name, e := range endings() {
				s.make(t, e.pod(name))
			}
			harness.Eventually(t, "all containers run", s.allRun)
			s.deletePods(t)
			harness.Eventually(t, "the pods are gone", s.gone)
			for name, e := range endings() {
				if got := s.ends(name); !maps.Equal(got, e.want) {
					t.Errorf("%s: containers are asked to end at %v, want %v", name, got, e.want)
				}
			}
		})
	}
}

// allRun returns an error if a container that will be stopped does not run.
func (s *side) allRun() error {
	runs := map[string]int{}
	for _, c := range s.Runtime.State().Containers {
		if c.Running() {
			runs[c.Subject.Pod]++
		}
	}
	var errs []error
	for name, e := range endings() {
		if runs[name] != len(e.want) {
			errs = append(errs, fmt.Errorf("of %s run %d, want %d", name, runs[name], len(e.want)))
		}
	}
	return errors.Join(errs...)
}

// ends returns when the containers of a pod were stopped, in units after the first.
func (s *side) ends(pod string) map[string]int {
	out := map[string]int{}
	var first time.Time
	for _, call := range s.Runtime.Journal(0) {
		if call.Method != "StopContainer" || call.Subject.Pod != pod {
			continue
		}
		if first.IsZero() {
			first = call.At
		}
		if _, again := out[call.Subject.Container]; !again {
			out[call.Subject.Container] = int(call.At.Sub(first).Round(unit) / unit)
		}
	}
	return out
}
