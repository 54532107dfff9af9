package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// The reported state of the same runs of containers is kept, that of other runs is not.
func TestRecalled(t *testing.T) {
	pod := makePod("Always side~ | web db")
	for _, c := range []*v1.Container{&pod.Spec.InitContainers[0], &pod.Spec.Containers[0],
		&pod.Spec.Containers[1]} {
		c.StartupProbe, c.ReadinessProbe = &v1.Probe{}, &v1.Probe{}
	}
	in := Input{Pod: pod, Facts: Facts{Observed: observe("sandbox db web side")}, Now: at(50)}
	reported := Generate(in)
	for name, c := range podspec.ByContainer(&reported) {
		c.Started, c.Ready = ptr.To(true), name != "db"
	}
	before := reported.DeepCopy()
	in.Now = at(90)
	own := Generate(in)
	for i := range reported.Conditions {
		reported.Conditions[i].LastTransitionTime.Time = at(10)
	}
	got := Recalled(pod, own, reported)
	for name, c := range podspec.ByContainer(&got) {
		if was := podspec.ByContainer(before)[name]; c.Ready != was.Ready || !*c.Started {
			t.Errorf("%s: started %v, ready %v", name, *c.Started, c.Ready)
		}
	}
	ready := conditionOf(got, v1.PodReady)
	if ready.Status != v1.ConditionFalse || !ready.LastTransitionTime.Time.Equal(at(10)) ||
		ready.Message != "containers with unready status: [db]" {
		t.Errorf("the pod is ready: %+v", ready)
	}
	reported.ContainerStatuses[0].Ready = true // db
	got = Recalled(pod, own, reported)
	for _, c := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		if is := conditionOf(got, c); is.Status != v1.ConditionTrue || is.Reason != "" {
			t.Errorf("all are ready: %+v", is)
		}
	}
	for _, c := range podspec.ByContainer(&reported) {
		c.ContainerID = "sim://another"
	}
	if diff := cmp.Diff(own.ContainerStatuses, Recalled(pod, own, reported).ContainerStatuses); diff != "" {
		t.Errorf("of other runs (-own +got):\n%s", diff)
	}
	if again := Generate(in); !cmp.Equal(own, again, cmp.Comparer(
		func(a, b time.Time) bool { return a.Equal(b) })) {
		t.Error("what it was made of has changed")
	}
}

// What probes found in an earlier run is not taken over; what no probe found stays.
func TestUnproven(t *testing.T) {
	pod := makePod("Always side~ | db none web")
	pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	pod.Spec.Containers[2].LivenessProbe = &v1.Probe{}
	in := Input{Pod: pod, Facts: Facts{Observed: observe("sandbox db none web side")}, Now: at(50)}
	reported := Generate(in)
	for _, c := range podspec.ByContainer(&reported) {
		c.Started, c.Ready = ptr.To(true), true
	}
	before := reported.DeepCopy()
	got := Unproven(pod, reported)
	for name, want := range map[string]string{
		"side": "false false", "db": "true false", "none": "true true", "web": "true true",
	} {
		c := podspec.ByContainer(&got)[name]
		if is := fmt.Sprint(*c.Started, c.Ready); is != want {
			t.Errorf("%s: started, ready: %s, want %s", name, is, want)
		}
	}
	if ready := conditionOf(got, v1.PodReady); ready.Status != v1.ConditionFalse {
		t.Errorf("the pod is ready: %+v", ready)
	}
	if diff := cmp.Diff(*before, reported); diff != "" {
		t.Errorf("what was reported has changed:\n%s", diff)
	}
	reported.Phase = v1.PodSucceeded
	if diff := cmp.Diff(reported, Unproven(pod, reported)); diff != "" {
		t.Errorf("of a pod that has ended:\n%s", diff)
	}
}
