package test

import (
	"testing"

	"github.com/numalet/numalet/test/harness"
)

// TestDevicesOfAPluginThatIsAway: across restarts of the agent, stopped or killed, a node whose
// plugin is away reports the devices that were healthy and not cordoned when the plugin was last
// there. It reports none once their grace period is over.
func TestDevicesOfAPluginThatIsAway(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Args = append(n.Args, "--device-plugin-allocatable-grace=1h")
	n.Start()
	ctl, stop := n.Plugin(theGPU, "--devices=4")
	awaitNumbers(n, 4, 4)
	if err := ctl.SetHealth(t.Context(), false, "gpu-1"); err != nil {
		t.Fatal(err)
	}
	if out, err := device(t, n, "cordon", theGPU, "gpu-2"); err != nil {
		t.Fatal(err, out)
	}
	awaitNumbers(n, 4, 2)

	n.Kill()
	stop()
	n.Start()
	awaitNumbers(n, 4, 2)
	if out, err := device(t, n, "uncordon", theGPU, "gpu-2"); err != nil {
		t.Fatal(err, out)
	}
	awaitNumbers(n, 4, 3)

	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	n.Args = append(n.Args, "--device-plugin-allocatable-grace=1ms")
	n.Start()
	awaitNumbers(n, 4, 0)

	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	n.Args = append(n.Args, "--device-plugin-capacity-grace=1ms")
	n.Start()
	awaitNumbers(n, 0, 0)

	n.Plugin(theGPU, "--devices=4")
	awaitNumbers(n, 4, 4)
}
