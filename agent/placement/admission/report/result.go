package report

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Result is an outcome with the words for it; Admit has some only for a pod that lacks something.
type Result struct {
	// Pod is as it was submitted; of one that was not, Released has the UID.
	Pod             *v1.Pod
	Outcome         decide.Outcome
	Reason, Message string
	// Short is the counted resource for whose lack a pod is rejected; "": it is for another reason.
	Short v1.ResourceName
	// Explained is the gist of the explanation of Wait and Reject, for the log and the event; of NotResized
	// the reason with which a pod would be rejected for the same.
	Explained string
	// Reworded: the outcome and the reason were said before, the message is another one, and no
	// other cause for which the pod waits for a device plugin.
	Reworded bool
	// Lack says what the pod lacks, with decide.ReasonWaitObjects.
	Lack decide.Lack
	// Rule is why a resize is infeasible, as the kubelet's metrics name it.
	Rule string
	// Trigger says why a resize that the node does was decided on.
	Trigger decide.Trigger
	// Tried is the plan that a pod is admitted with, or rejected for; nil where none was made.
	Tried *Tried
}

// Tried is a plan, and the error of it or of what the plugins said to it.
type Tried struct {
	Plan allocation.Plan
	Err  error
	Took time.Duration // to decide
}

// Preemption is the end of a pod that makes way for a critical one, with the reason.
type Preemption struct {
	Victim, Critical *v1.Pod
	// Resource is the first that the critical pod lacks.
	Resource v1.ResourceName
}
