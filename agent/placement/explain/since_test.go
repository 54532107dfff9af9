package explain

import (
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
