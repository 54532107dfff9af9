package line

import (
	"testing"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

// What a pod that runs requests counts from the moment that it is known, also for those who came
// before it and are decided on before it is.
func TestPodThatRunsCountsAtOnce(t *testing.T) {
	for _, runs := range []bool{true, false} {
		of := New(Settings{BootID: "boot-1"}, Facts{})
		of.add(&Entry{Record: record.Record{Demand: decide.DemandOf(podtest.New("a", podtest.Guaranteed("main cpu=4")), nil, topology.Rules{}), Runs: runs}})
		requests := of.Ledger.Requests(allocation.Held)
		if counted := requests.Cpu().Value() == 4; counted != runs {
			t.Errorf("runs: %v, and %s CPUs count", runs, requests.Cpu())
		}
	}
}
