package playground

import (
	"testing"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/gpu"
)

// A container that waits for what the playground itself brings has not settled; one that waits for
// what never comes has.
func TestRowSettled(t *testing.T) {
	offers := []plugin{{driver: gpu.DriverName}, {resource: "example.com/nic"}}
	for _, test := range []struct {
		reason, message, cpus string
		want                  bool
	}{
		{"", "", "0-3", true},
		{"", "", "", false},
		{"ContainerCreating", "", "0-3", false},
		{"CrashLoopBackOff", "", "", true},
		{"WaitingForDevicePlugin", "no device plugin has registered example.com/nic", "", false},
		{"WaitingForDevicePlugin", "no device plugin has registered example.com/fpga", "", true},
		{claim.ReasonWaitDriver, "the driver gpu.nvidia.com has not registered", "", false},
		{claim.ReasonWaitDriver, "the driver fpga.example.com has not registered", "", true},
		{claim.ReasonWaitClaim, "the claim is not allocated", "", false},
	} {
		r := assigned.Row{Place: assigned.Place{CPUs: test.cpus}}
		r.State.Reason, r.State.Message = test.reason, test.message
		if got := rowSettled(r, offers); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
