package test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/test/harness"
)

// TestCallsNameTheirPod: the metadata of each call about a container names that container to the
// plugin.
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

// If pods come at the same time, each device's calls name the pod that has it.
func TestCallsNameTheirPodsAtOnce(t *testing.T) {
	t.Parallel()
	const pods = 8
	n := harness.New(t)
	n.Start()
	ctl, _ := n.Plugin("example.com/gpu", fmt.Sprintf("--devices=%d", pods), "--pre-start")
	for i := range pods {
		name := fmt.Sprintf("asks%d", i)
		n.Pod(name, limited(name, "cpu: 1, example.com/gpu: 1"))
	}
	has := map[string]holder.Holder{}
	for i := range pods {
		pod := n.AwaitPhase(fmt.Sprintf("asks%d-node", i), v1.PodRunning)
		for _, id := range pod.Status.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources {
			has[string(id.ResourceID)] = holder.Holder{Namespace: "default", Pod: pod.Name,
				UID: string(pod.UID), Container: "main"}
		}
	}
	state, err := ctl.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range has {
		if got := state.Given[id]; got.Allocated != want || got.Prepared != want {
			t.Errorf("%s is of %+v, and the plugin was told %+v", id, want, got)
		}
	}
	if len(has) != pods {
		t.Errorf("%d devices are held", len(has))
	}
}
