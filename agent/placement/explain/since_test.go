package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
)

// A pod's own plugins are complained about, always; its devices and containers until it has ended.
func TestAmiss(t *testing.T) {
	pod := podtest.New("", podtest.Containers("c a.b/gpu=1"))
	complaints := []devicemanager.Complaint{{Reason: "Odd", Message: "lists ids twice"}}
	peers := []devicemanager.Peer{
		{Resource: "a.b/gpu", Problem: "not connected", Complaints: complaints},
		{Resource: "a.b/nic", Complaints: complaints},
	}
	devices := func() []string { return []string{"a device is not healthy"} }
	got := Amiss(pod, peers, "/logs", time.Unix(1000, 0), devices)
	want := Remarks{Plugins: []string{"a.b/gpu: lists ids twice"}, Since: devices()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it runs (-want +got):\n%s", diff)
	}
	pod.Status.Phase = v1.PodFailed
	want.Since = nil
	if diff := cmp.Diff(want, Amiss(pod, peers, "/logs", time.Unix(1000, 0), devices)); diff != "" {
		t.Errorf("it has ended (-want +got):\n%s", diff)
	}
}

// A container in a crash loop has how it ended, how often, and where its log is; one that waits for its
// turn or has done its work is left out.
func TestStuck(t *testing.T) {
	now := time.Unix(1000, 0)
	exited := func(code int32, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason,
			FinishedAt: metav1.NewTime(now.Add(-12 * time.Second))}}
	}
	waits := func(reason, message string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	pod := podtest.New("shop/till", podtest.UID("u"))
	pod.Status = v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "done", State: exited(0, "Completed")}},
		ContainerStatuses: []v1.ContainerStatus{
			{Name: "loops", RestartCount: 4, State: waits("CrashLoopBackOff", "back-off 40s"),
				LastTerminationState: exited(0, "Completed")},
			{Name: "failed", State: exited(3, "Error")},
			{Name: "pulls", State: waits("ErrImagePull", "no such image")},
			{Name: "later", State: waits("PodInitializing", "")},
			{Name: "runs", LastTerminationState: exited(1, "Error"),
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}}
	since, logs := stuck(pod, "/logs", now)
	if diff := cmp.Diff([]string{
		"Container loops: waiting, CrashLoopBackOff: back-off 40s; it exited with 0 (Completed) 12s " +
			"ago, 4 restarts, its log is /logs/shop_till_u/loops/4.log",
		"Container failed: it exited with 3 (Error) 12s ago, 0 restarts, its log is " +
			"/logs/shop_till_u/failed/0.log",
		"Container pulls: waiting, ErrImagePull: no such image",
	}, since); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Log{{Container: "loops", Path: "/logs/shop_till_u/loops/4.log"},
		{Container: "failed", Path: "/logs/shop_till_u/failed/0.log"}}, logs); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

// What keeps a pod from other resources is said, with what would let it have them, until it has ended.
func TestResizes(t *testing.T) {
	condition := func(kind v1.PodConditionType, reason, message string) v1.PodCondition {
		return v1.PodCondition{Type: kind, Status: v1.ConditionTrue, Reason: reason, Message: message}
	}
	none := func() []string { return nil }
	for want, conditions := range map[string][]v1.PodCondition{
		"": {{Type: v1.PodResizePending, Status: v1.ConditionFalse}, condition(v1.PodReady, "", "")},
		"Its resize waits: no room; it is decided on again when a pod ends or shrinks, and when the machine has more": {
			condition(v1.PodResizePending, v1.PodReasonDeferred, "no room")},
		"Its resize is not done: never; have it ask for what it has, or delete it and create it with what it is to have": {
			condition(v1.PodResizePending, v1.PodReasonInfeasible, "never")},
		"Its resize is being carried out": {condition(v1.PodResizeInProgress, "", "")},
		"Its resize is not complete: in use; it is tried again": {
			condition(v1.PodResizeInProgress, v1.PodReasonError, "in use")},
	} {
		pod := podtest.New("", podtest.Containers("c"))
		pod.Status.Conditions = conditions
		if got := strings.Join(Amiss(pod, nil, "/logs", time.Unix(1000, 0), none).Since, "\n"); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		pod.Status.Phase = v1.PodFailed
		if got := Amiss(pod, nil, "/logs", time.Unix(1000, 0), none).Since; got != nil {
			t.Errorf("of one that has ended: %q", got)
		}
	}
}
