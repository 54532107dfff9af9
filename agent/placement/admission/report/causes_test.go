package report

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// Each cause of a wait for a plugin is news once, and a plugin that has other words each time is
// bounded.
func TestCauses(t *testing.T) {
	var state reported
	for i, step := range []struct {
		outcome         decide.Outcome
		reason, message string
		want            bool
	}{
		{decide.Wait, decide.ReasonWaitPlugin, "waiting for the plugin to send its devices", true},
		{decide.Wait, decide.ReasonWaitPlugin, "no answer to Allocate yet", true},
		{decide.Wait, decide.ReasonWaitPlugin, "waiting for the plugin to send its devices", false},
		{decide.Wait, decide.ReasonWaitResources, "1 of 2 free", false},
		{decide.Reject, decide.ReasonWaitPlugin, "the time is over", false},
	} {
		r := Result{Outcome: step.outcome, Reason: step.reason, Message: step.message}
		if got := state.newCause(r); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
	news := 0
	for i := range 10 * mostCauses {
		if state.newCause(Result{Outcome: decide.Wait, Reason: decide.ReasonWaitPlugin, Message: fmt.Sprint(i)}) {
			news++
		}
	}
	if news != mostCauses-2 {
		t.Errorf("%d more are news, want %d in all", news, mostCauses)
	}
}
