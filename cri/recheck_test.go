package cri_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
)

// Recheck reads new objects by their ids alone, and finds what a list and a full read would find.
func TestRecheckOfWhatWasMade(t *testing.T) {
	server := simtest.Start(t, crisim.Config{Images: []string{"app"}})
	client := simtest.Connect(t, server)
	recheck := func(last cri.Pod, made cri.Made) cri.Pod {
		t.Helper()
		before := server.State().Calls
		pod, err := client.Recheck(t.Context(), last, made)
		if err != nil {
			t.Fatal(err)
		}
		after := server.State().Calls
		if after["ListContainers"]+after["ListPodSandbox"] !=
			before["ListContainers"]+before["ListPodSandbox"] {
			t.Error("it was listed")
		}
		full, err := client.Pod(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		full.ReadAt, pod.ReadAt = time.Time{}, time.Time{}
		if !reflect.DeepEqual(full, pod) {
			t.Errorf("it is read as\n%+v\nand in full as\n%+v", pod, full)
		}
		return pod
	}
	nothing := cri.Pod{UID: "a"}
	sandbox := runPod(t, client, "a", nil)
	pod := recheck(nothing, cri.Made{Sandbox: sandbox})
	if len(pod.Sandboxes) != 1 || pod.Name != "pod" {
		t.Errorf("pod is %+v", pod)
	}
	runPod(t, client, "b", nil)
	first := start(t, client, sandbox, "first", sandboxOf("a"))
	pod = recheck(pod, cri.Made{Sandbox: sandbox, Container: first})
	second := start(t, client, sandbox, "second", sandboxOf("a"))
	pod = recheck(pod, cri.Made{Sandbox: sandbox, Container: second})
	pod = recheck(pod, cri.Made{Sandbox: sandbox, Container: second}) // others have read it meanwhile
	if len(pod.Sandboxes) != 1 || len(pod.Containers) != 2 {
		t.Errorf("pod is %+v", pod)
	}
	if err := client.Runtime().StopPodSandbox(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	third := cri.Made{Sandbox: sandbox, Container: "vanished"}
	if pod = recheck(pod, third); pod.Sandboxes[0].Ready || pod.Running() {
		t.Errorf("what was made beside its end is %+v", pod)
	}
	if err := client.Runtime().RemovePodSandbox(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	recheck(nothing, third)
}
