package complaint

import (
	"errors"
	"testing"
)

// What is wrong is new when it begins and when it becomes something else; its end is a change, and
// after that the same begins again.
func TestComplaint(t *testing.T) {
	var c, twin Complaint[string]
	for i, step := range []struct {
		err                    error
		changes, begins, lasts bool
	}{
		{nil, false, false, false},
		{errors.New("a"), true, true, true},
		{errors.New("a"), false, false, true},
		{errors.New("b"), true, true, true},
		{nil, true, false, false},
		{errors.New("b"), true, true, true},
	} {
		changes, begins := c.Changes(Of(step.err)), twin.Begins(Of(step.err))
		if changes != step.changes || begins != step.begins || c.Lasts() != step.lasts {
			t.Errorf("%d, %v: changes %t, begins %t, lasts %t", i, step.err, changes, begins, c.Lasts())
		}
	}
}
