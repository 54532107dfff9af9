package test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
)

// A plugin that never acknowledges a release keeps the devices for only half a minute. An event of
// the node says that they are given out without an acknowledgement. If two pods go at the same
// time, each gets its own event.
func TestReleaseUnanswered(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	ctl, _ := n.Plugin(gpu, "--devices=2", "--id-prefix=gpu", "--no-preferred", "--released")
	for _, name := range []string{"a", "b"} {
		n.Pod(name, limited(name, "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	if err := ctl.Fault(t.Context(), pluginsim.Fault{
		RPC: pluginsim.Released, Code: "UNAVAILABLE", Message: "the switch is busy",
	}); err != nil {
		t.Fatal(err)
	}
	n.RemovePod("a")
	n.RemovePod("b")
	n.AwaitGone("a-node")
	n.AwaitGone("b-node")
	n.Pod("next", limited("next", "cpu: 1, memory: 1Gi, example.com/gpu: 2"))
	n.AwaitPhase("next-node", v1.PodRunning)
	for _, pod := range []string{"default/a-node", "default/b-node"} {
		awaitNoted(n, "DeviceReleaseUnanswered", pod)
	}
	awaitNoted(n, "DeviceReleaseUnanswered", "the switch is busy")
}
