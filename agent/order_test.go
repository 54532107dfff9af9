package agent

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
)

// Of pods that come together those that run are first, then the older ones; what is left is by
// namespace, name and UID.
func TestPodsThatComeTogetherAreInOrder(t *testing.T) {
	at := func(hour int) metav1.Time {
		return metav1.NewTime(time.Date(2030, 1, 1, hour, 0, 0, 0, time.UTC))
	}
	pod := func(uid, namespace, name string, created metav1.Time) *v1.Pod {
		p := &v1.Pod{}
		p.UID, p.Namespace, p.Name, p.CreationTimestamp = types.UID(uid), namespace, name, created
		return p
	}
	l := &loop{last: func(uid types.UID) (cri.Pod, bool) {
		return cri.Pod{
			Sandboxes: []cri.Sandbox{{Ready: uid == "runs" || uid == "runs, older"}},
		}, true
	}}
	given := []*v1.Pod{
		pod("runs", "z", "z", at(9)), pod("5", "a", "b", at(3)), pod("4", "a", "a", at(3)),
		pod("6", "b", "a", at(3)), pod("3", "z", "z", at(2)), pod("2", "a", "a", metav1.Time{}),
		pod("1", "a", "a", metav1.Time{}), pod("runs, older", "z", "z", at(8)),
	}
	var got []types.UID
	for _, p := range l.inOrder(given) {
		got = append(got, p.UID)
	}
	want := []types.UID{"runs, older", "runs", "1", "2", "3", "4", "5", "6"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
	if given[0].UID != "runs" {
		t.Error("the update itself was changed")
	}
}

// An event comes once for each reason; a pod that runs and lacks something is told of as well.
func TestEventsOfDecisions(t *testing.T) {
	pod := examplePod()
	var events []string
	l := idleLoop(cri.Pod{})
	l.pods = newPods(status.Node{})
	l.workers = podworker.New(podworker.Config{})
	l.rejected = func(admission.Result) {}
	l.event = func(_ *v1.Pod, kind, reason, message string) {
		events = append(events, kind+" "+reason+": "+message)
	}
	l.desire(pod)
	for _, r := range []admission.Result{
		{
			Outcome: admission.Wait, Reason: "WaitingForDevicePlugin", Message: "no answer",
			Explained: "why",
		},
		{
			Outcome: admission.Wait, Reason: "WaitingForDevicePlugin", Message: "it failed",
			Reworded: true,
		},
		{Outcome: admission.Wait, Reason: "WaitingForResources", Message: "held"},
		{
			Outcome: admission.Reject, Reason: "OutOfcpu", Message: "too few",
			Explained: "would fit: 1",
		},
		{Outcome: admission.Admit},
		{Outcome: admission.Admit, Reason: "AdoptedWithoutResources", Message: "it lacks 1"},
	} {
		r.Pod = pod
		l.decided(t.Context(), r)
	}
	want := []string{
		"Normal WaitingForDevicePlugin: no answer; why", "Normal WaitingForResources: held",
		"Warning OutOfcpu: too few; would fit: 1", "Warning AdoptedWithoutResources: it lacks 1",
	}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}
