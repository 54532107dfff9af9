package admission

import (
	"strings"
	"sync/atomic"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// endless finds a queue that decides without end within a step.
type endless struct {
	walk  *walk
	asked atomic.Int64 // in this step
}

func (e *endless) check(a decide.Attempt) *decide.Refusal {
	const most = 10 * enough
	if n := e.asked.Add(1); n > most-20 {
		w := e.walk
		w.tell("decided on is %s", a.Pod.UID)
		for _, o := range w.desk.queue.admitter.line.Order {
			w.tell("  %s after %s %v: %s, %q", o.Pod.UID, o.After, o.ForSlot, w.state(w.find(o.Pod.UID)), o.Cause.Reason())
		}
		if n > most {
			panic("admission decides without end\n" + strings.Join(w.story, "\n"))
		}
	}
	return nil
}
