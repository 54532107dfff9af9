package test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/test/harness"
)

// releases waits until the plugin was told of count releases, and returns them.
func releases(t *testing.T, n *harness.Node, ctl *pluginsim.Client, count int) (
	out []pluginsim.Release) {
	t.Helper()
	n.Eventually(fmt.Sprint("the plugin was told of ", count, " releases"), func() error {
		state, err := ctl.State(t.Context())
		if err != nil {
			return err
		}
		if out = state.Released; len(out) < count {
			return fmt.Errorf("there are %+v", out)
		}
		return nil
	})
	return out
}

// A plugin that serves the second service is told of each pod that is gone, whatever dies in
// between. Until then no other pod gets the devices.
func TestReleased(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	const options = "--devices=1"
	ctl, stop := n.Plugin(gpu, options, "--id-prefix=gpu", "--no-preferred", "--released")
	n.Pod("first", limited("first", "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
	pod := n.AwaitPhase("first-node", v1.PodRunning)
	by := holder.Holder{Namespace: "default", Pod: "first-node", UID: string(pod.UID)}

	// The plugin refuses, so the device is not freed, and the next pod waits and says why.
	if err := ctl.Fault(t.Context(), pluginsim.Fault{
		RPC: pluginsim.Released, Code: "UNAVAILABLE", Message: "the switch is busy",
	}); err != nil {
		t.Fatal(err)
	}
	n.RemovePod("first")
	n.Eventually("the device is said to be released", func() error {
		out, err := device(t, n, "list")
		if err != nil || !strings.Contains(out,
			"released by default/first-node, its plugin is being told") {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
	n.Pod("second", limited("second", "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
	n.Eventually("the second pod is told what it waits for", func() error {
		text, err := explainPod(t, n, "second-node")
		if err != nil || !strings.Contains(text, "has not answered yet that it knows of the release "+
			"of gpu-0 of example.com/gpu, which default/first-node had") {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	})

	n.Eventually("/problems says what the plugin does wrong", func() error {
		text := n.Get("/problems")
		for _, want := range []string{"the switch is busy", "Released",
			"numalet.deviceplugin.v1.Lifecycle has to answer with success"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("it says %s, want %s", text, want)
			}
		}
		return nil
	})

	// Both die, and the plugin comes back later than the agent.
	n.Kill()
	stop()
	n.Start()
	ctl, stop = n.Plugin(gpu, options, "--id-prefix=gpu", "--no-preferred", "--released")
	n.AwaitPhase("second-node", v1.PodRunning)
	got := releases(t, n, ctl, 1)
	if first := got[0]; first.By != by || fmt.Sprint(first.IDs) != "[gpu-0]" {
		t.Errorf("the plugin was told that %v are released by %+v", first.IDs, first.By)
	}
	n.Eventually("plugin list says that it is told", func() error {
		if text := n.Get("/plugins"); !strings.Contains(text, `"released": true`) {
			return fmt.Errorf("/plugins says %s", text)
		}
		return nil
	})

	// The plugin is away while the pod ends. A plugin that takes its place and does not want to be
	// told is not told.
	stop()
	n.RemovePod("second")
	n.AwaitGone("second-node")
	n.Plugin(gpu, options, "--id-prefix=gpu", "--no-preferred")
	n.Pod("third", limited("third", "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
	n.AwaitPhase("third-node", v1.PodRunning)
	if out, err := device(t, n, "list"); err != nil || strings.Contains(out, "released by") {
		t.Errorf("numalet device list: %s (%v)", out, err)
	}
}
