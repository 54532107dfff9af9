package conformance

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
)

func options(server *crisim.Server) Options {
	return Options{
		Endpoint: server.Endpoint(),
		Image:    "sim.local/run",
		Forever:  []string{"sleep", "infinity"},
		Stubborn: []string{"sh", "-c", "trap '' TERM; sleep infinity"},
		Exit: func(code int) []string {
			return []string{"sh", "-c", fmt.Sprintf("exit %d", code)}
		},
		CPUs:      "0-3",
		FewerCPUs: "2-3",
	}
}

func TestSimulatedRuntime(t *testing.T) {
	server := simtest.Start(t, crisim.Config{})
	Run(t, simtest.Connect(t, server), options(server))
	if left := server.State(); len(left.Sandboxes)+len(left.Containers) != 0 {
		t.Errorf("left behind: %+v", left)
	}
}

func TestWithoutEvents(t *testing.T) {
	server := simtest.Start(t, crisim.Config{CgroupDriver: "none"})
	if err := server.SetEvents(crisim.EventsUnimplemented); err != nil {
		t.Fatal(err)
	}
	opts := options(server)
	opts.NoEvents = true
	Run(t, simtest.Connect(t, server), opts)
}
