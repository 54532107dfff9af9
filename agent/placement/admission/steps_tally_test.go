package admission

import (
	"sync"
	"testing"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// tally counts what came about, over all walks.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (y *tally) add(counts map[string]int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for name, n := range counts {
		y.counts[name] += n
	}
}

// check finds kinds of events that hardly occurred: of those the walks say nothing.
func (y *tally) check(t *testing.T) {
	for _, m := range moves {
		if y.counts["step "+m.name] < 3 {
			t.Errorf("%d steps %q are too few to mean anything", y.counts["step "+m.name], m.name)
		}
	}
	for _, name := range []string{
		"Admit", "Reject", "Wait " + decide.ReasonWaitPlugin, "Wait " + decide.ReasonWaitResources,
		"Wait " + decide.ReasonWaitDevices, "Wait " + decide.ReasonWaitStore, "Wait " + decide.ReasonWaitObjects,
		"Wait for room", "asked what it needs", "kept its own", "adopted",
		"has CPUs", "isolated CPUs", "padded CPUs", "has memory", "has devices", "commit torn",
		"told of releases", "waited for a release", "in line", "question without an answer",
		"chosen devices",
	} {
		if y.counts[name] < 3 {
			t.Errorf("%d times %s are too few to mean anything", y.counts[name], name)
		}
	}
	if y.counts["walk with claims"] == 0 {
		return
	}
	for _, name := range []string{
		"Wait " + claim.ReasonWaitClaim, "Wait " + claim.ReasonWaitDriver, "has claims", "claim prepared",
		"claim unprepared", "driver answered late", "Reject " + allocation.ReasonOwned,
	} {
		if y.counts[name] < 3 {
			t.Errorf("%d times %s are too few to mean anything", y.counts[name], name)
		}
	}
}
