package test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/deviceplugin/holder"
	pluginsim "github.com/numalet/numalet/deviceplugin/sim"
	"github.com/numalet/numalet/test/harness"
)

// TestCallsNameTheirPod: plugins find in the metadata of each call that is about a container which
// one that is.
func TestCallsNameTheirPod(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	ctl, _ := n.Plugin("example.com/gpu", "--devices=4", "--pre-start")
	n.Pod("asks", limited("asks", "cpu: 1, example.com/gpu: 2"))
	pod := n.AwaitPhase("asks-node", v1.PodRunning)
	state, err := ctl.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := holder.Holder{Namespace: "default", Pod: "asks-node", UID: string(pod.UID),
		Container: pod.Spec.Containers[0].Name}
	for _, rpc := range []pluginsim.RPC{
		pluginsim.Preferred, pluginsim.Allocate, pluginsim.PreStart,
	} {
		if got := state.Holders[rpc]; got != want {
			t.Errorf("%s was for %+v, want %+v", rpc, got, want)
		}
	}
	for _, rpc := range []pluginsim.RPC{pluginsim.Options, pluginsim.List} {
		if got, known := state.Holders[rpc]; known {
			t.Errorf("%s was for %+v", rpc, got)
		}
	}
}
