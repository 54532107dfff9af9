package podworker

import (
	"errors"
	"testing"
)

// A pod has ended that is finished and stays; one that is to be removed is told of when it is gone.
func TestReportEnded(t *testing.T) {
	finished := Decision{State: Finished}
	for name, c := range map[string]struct {
		r    Report
		want bool
	}{
		"runs":             {Report{Decision: Decision{State: SyncPod}}, false},
		"terminates":       {Report{Decision: Decision{State: TerminatingPod}, Stop: &Stop{}}, false},
		"ended by itself":  {Report{Decision: finished}, true},
		"ended by a stop":  {Report{Decision: finished, Stop: &Stop{}}, true},
		"to be removed":    {Report{Decision: finished, Stop: &Stop{Remove: true}}, false},
		"was not observed": {Report{Err: errors.New("no answer"), Decision: finished}, false},
	} {
		if got := c.r.Ended(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
