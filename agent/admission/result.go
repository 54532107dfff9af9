package admission

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
)

// Result is an outcome with the words for it; Admit has some only for a pod that lacks something.
type Result struct {
	Pod             *v1.Pod
	Outcome         Outcome
	Reason, Message string
	// Explained is the gist of the explanation, for the log and the event.
	Explained string
	// Reworded: the outcome and the reason were said before, the message is another one.
	Reworded bool
	// Tried is the plan that a pod is admitted with, or rejected for; nil where none was made.
	Tried *Tried
}

// Tried is a plan, and the error of it or of what the plugins said to it.
type Tried struct {
	Plan allocation.Plan
	Err  error
	Took time.Duration
}
