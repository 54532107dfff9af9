package report

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// recorded is the last event, with the container that it is about.
type recorded struct{ text string }

func (r *recorded) Pod(pod *v1.Pod, eventType, reason, message string) {
	r.text = pod.Name + " " + eventType + " " + reason + ": " + message
}

func (r *recorded) Container(of podspec.Ref, eventType, reason, message string) {
	r.text = of.Pod.Name + "/" + of.Container + " " + eventType + " " + reason + ": " + message
}

// Events are about the pod, or the container that lacks something, and have the kubelet's words where
// it has any.
func TestEvents(t *testing.T) {
	p := podtest.New("p")
	var r recorded
	events := Events{&r}
	says := func(why, want string) {
		t.Helper()
		if r.text != want {
			t.Errorf("%s: %q, want %q", why, r.text, want)
		}
		r.text = ""
	}
	lack := decide.Lack{Reason: "Failed", Why: "no secret"}
	events.Lack(Result{Pod: p})
	says("a pod that lacks nothing", "")
	events.Lack(Result{Pod: p, Lack: decide.Lack{Unknown: true, Reason: "Failed", Why: "not known"}})
	says("it is not known what it lacks", "")
	events.Lack(Result{Pod: p, Lack: lack})
	says("a pod that lacks a secret", "p Warning Failed: no secret")
	lack.Usual = true
	events.Lack(Result{Pod: p, Lack: lack})
	says("a pod with which nothing is wrong so far", "")
	lack.Usual, lack.Container = false, "c"
	events.Lack(Result{Pod: p, Lack: lack})
	says("a container that lacks a secret", "p/c Warning Failed: no secret")

	events.Unadvised(p, allocation.AskKey{Container: "c", Resource: "a.b/gpu"}, errors.New("late"))
	says("an ignored preference", "p Warning DevicePreferenceIgnored: Container c: the agent chose "+
		"devices of a.b/gpu without the device plugin's preference: late")

	reason, message := events.Preempted(Preemption{Victim: p})
	says("a preemption", "p Warning Preempting: Preempted in order to admit critical pod")
	if reason != "Preempting" || message != "Preempted in order to admit critical pod" {
		t.Errorf("it ends for %s: %s", reason, message)
	}
}
