package statuses

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// refuses is what an API server says of fields.
func refuses(paths ...string) error {
	var all field.ErrorList
	for _, path := range paths {
		all = append(all, &field.Error{Type: field.ErrorTypeDuplicate, Field: path, BadValue: "gpu-1"})
	}
	return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", all)
}

// health is the status of a container with health of a device under these ids.
func health(name string, ids ...string) v1.ContainerStatus {
	of := v1.ResourceStatus{Name: "claim:gpus"}
	for _, id := range ids {
		of.Resources = append(of.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id)})
	}
	return v1.ContainerStatus{Name: name, Ready: true, AllocatedResourcesStatus: []v1.ResourceStatus{of}}
}

// What an API server refuses becomes a part of the status by its name, whatever is wrong within it.
func TestRefusedParts(t *testing.T) {
	s := v1.PodStatus{
		PodIPs:            []v1.PodIP{{IP: "10.0.0.1"}},
		Conditions:        []v1.PodCondition{{Type: v1.PodScheduled}, {Type: v1.PodReady}},
		ContainerStatuses: []v1.ContainerStatus{health("main"), health("second")},
	}
	for _, test := range []struct {
		paths []string
		want  string
	}{
		{[]string{"status.containerStatuses[1].allocatedResourcesStatus[0].resources[1].resourceID"},
			"status.containerStatuses[second].allocatedResourcesStatus"},
		{[]string{"status.containerStatuses[0].state", "status.containerStatuses[0].state.running",
			"status.containerStatuses[0]"},
			"status.containerStatuses[main].state, status.containerStatuses[main]"},
		{[]string{"status.containerStatuses"}, "status.containerStatuses"},
		{[]string{"status.containerStatuses[7].state"}, "status.containerStatuses"},
		{[]string{"status.conditions[1].observedGeneration"},
			"status.conditions[Ready].observedGeneration"},
		{[]string{"status.podIPs[0]", "status.qosClass"}, "status.podIPs, status.qosClass"},
		{[]string{"status.containerStatuses[0].resources.limits[cpu]"},
			"status.containerStatuses[main].resources"},
		{[]string{"status.qosClass", "status.phase"}, ""}, // then nothing else can be told
		{[]string{"status.qosClass", "metadata.labels"}, ""},
		{[]string{"<nil>"}, ""},
		{nil, ""},
	} {
		if got := said(refusedParts(refuses(test.paths...), s)); got != test.want {
			t.Errorf("%q is about %q, want %q", test.paths, got, test.want)
		}
	}
	var many []string
	for n := range mostParts + 1 {
		many = append(many, fmt.Sprintf("status.field%d", n))
	}
	if got := refusedParts(refuses(many...), s); got != nil {
		t.Errorf("%d parts are left out one by one", len(got))
	}
}

// Parts that are left out are as the API server has them.
func TestWithout(t *testing.T) {
	there := v1.PodStatus{QOSClass: v1.PodQOSBurstable,
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, Message: "old"}},
		ContainerStatuses: []v1.ContainerStatus{health("main", "old")}}
	s := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", QOSClass: v1.PodQOSGuaranteed,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Message: "new"},
			{Type: v1.PodScheduled, Message: "new"}},
		ContainerStatuses: []v1.ContainerStatus{health("second", "new"), health("main", "new")}}
	const list, inner = "containerStatuses", "allocatedResourcesStatus"
	got, err := without(s, there, []part{{"qosClass", "", ""}, {"podIP", "", ""},
		{"conditions", "Ready", ""}, {"conditions", "PodScheduled", ""}, {"conditions", "gone", ""},
		{list, "main", inner}, {list, "second", inner}, {list, "gone", inner}})
	second := health("second")
	second.AllocatedResourcesStatus = nil
	want := v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable,
		Conditions:        there.Conditions,
		ContainerStatuses: []v1.ContainerStatus{second, health("main", "old")}}
	if err != nil || !same(got, want) {
		t.Errorf("left is %+v, %v", got, err)
	}
}

// unique refuses health of two devices under one id, as the API server does.
func unique(pod *v1.Pod) error {
	var paths []string
	for n, c := range pod.Status.ContainerStatuses {
		for m, of := range c.AllocatedResourcesStatus {
			ids := map[v1.ResourceID]bool{}
			for k, one := range of.Resources {
				if ids[one.ResourceID] {
					paths = append(paths, fmt.Sprintf("status.containerStatuses[%d]."+
						"allocatedResourcesStatus[%d].resources[%d].resourceID", n, m, k))
				}
				ids[one.ResourceID] = true
			}
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return refuses(paths...)
}

// An API server that refuses a part of a status is told the rest at once. That is said once, with the
// part and the reason, and a status that has changed is tried as a whole.
func TestRefusedStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		var reported []string
		w.tell = func(about runtime.Object, kind, reason, message string) {
			reported = append(reported, strings.Join([]string{about.(*v1.Pod).Name, kind, reason, message}, " "))
		}
		s.valid = unique
		w.Saw(s.set())
		says := func(message string, ids ...string) (v1.PodStatus, string) {
			s.says(w, "a", v1.PodStatus{Phase: v1.PodRunning, Message: message,
				ContainerStatuses: []v1.ContainerStatus{health("main", "gpu-0"),
					health("second", ids...)}}, false)
			time.Sleep(time.Minute)
			pod, requests := s.pod("a")
			return pod.Status, requests
		}
		got, requests := says("one", "gpu-1", "gpu-1")
		if got.Phase != v1.PodRunning || got.Message != "one" || !got.ContainerStatuses[1].Ready ||
			len(got.ContainerStatuses[0].AllocatedResourcesStatus) != 1 ||
			len(got.ContainerStatuses[1].AllocatedResourcesStatus) != 0 || requests != "patch a, patch a" {
			t.Errorf("after %s the API server has %+v", requests, got)
		}
		got, requests = says("two", "gpu-1", "gpu-1")
		if got.Message != "two" || requests != "patch a, patch a" {
			t.Errorf("after %s the API server has %+v", requests, got)
		}
		want := `a Warning PodStatusRefused The API server refuses the pod's status: Pod "a" is invalid: ` +
			`status.containerStatuses[1].allocatedResourcesStatus[0].resources[1].resourceID: ` +
			`Duplicate value: "gpu-1". Left out: status.containerStatuses[second].allocatedResourcesStatus`
		if len(reported) != 1 || reported[0] != want {
			t.Errorf("it told %q, want once %q", reported, want)
		}
		got, requests = says("three", "gpu-1", "gpu-2")
		if len(got.ContainerStatuses[1].AllocatedResourcesStatus) != 1 || requests != "patch a" {
			t.Errorf("after %s the API server has %+v", requests, got)
		}
		if says("four", "gpu-1", "gpu-1"); len(reported) != 2 {
			t.Errorf("it told %q", reported)
		}
	})
}

// An API server that finds another fault each time is told the phase after a few requests.
func TestRefusesEverMore(t *testing.T) {
	now := time.Now()
	b, uid := waits("", now)
	for n := 1; ; n++ {
		q, _ := b.Next(uid, now)
		if len(q.Status.ContainerStatuses) == 0 {
			break
		}
		if n > mostTries+1 {
			t.Fatalf("it is tried %d times", n)
		}
		if out, err := b.Answered(uid, q, nil, refuses(fmt.Sprintf("status.x%d", n)), now); err != nil ||
			out.Refused == "" {
			t.Errorf("after %d tries: %+v, %v", n, out, err)
		}
	}
	q, _ := b.Next(uid, now)
	if _, err := b.Answered(uid, q, nil, refuses("status.phase"), now); err == nil {
		t.Error("the phase is refused, and it is tried again at once")
	}
}
