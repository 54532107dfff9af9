package record

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Event is one of the types below: something that happens to one pod. Step knows all of them.
type Event any

type (
	// Resubmitted: the pod requests something else; Planned is that with the resources that it was
	// decided on with.
	Resubmitted struct{ Demand, Planned decide.Demand }
	// Asked: the pod, which was admitted, asks for this.
	Asked struct{ Demand decide.Demand }
	// Changed: a resize that could not be may be possible now.
	Changed struct{}
	// Sized: the pod's resize was decided on.
	Sized struct{ decide.Resizing }
	// Left: the pod has begun to terminate; Ended: by itself.
	Left struct{ Ended bool }
	// Gone: what the pod has is given back.
	Gone struct{}
	// Late: the time of the state is over. Words say what takes so long; "": nothing to say.
	Late struct {
		Cause decide.Cause
		Words string
	}
	// Overdue: the pod may wait no longer.
	Overdue struct{}
	// Moved: a change that the pod may have waited for.
	Moved struct{}
	// Remade: the machine would not give the pod its reservation any more.
	Remade struct{}

	// Considered: the pod was decided on, and other pods were not looked at yet.
	Considered struct{ decide.Decision }
	// Decided: the pod was decided on beside the others. Contested: it claims devices of which plugins have a
	// preference.
	Decided struct {
		decide.Decision
		Contested bool
	}
	// Ranked: another pod's devices have to be known before the pod is decided on.
	Ranked struct {
		After   types.UID
		ForSlot bool // it waits for the slot of that pod
		// The pod keeps Place meanwhile; without containers it has none.
		Place allocation.Pod
	}

	// Advised: a plugin answered, or failed to answer, which devices it prefers.
	Advised struct {
		Key allocation.AskKey
		IDs []string
		Err error
	}
	// Looked: what was stale has been read again, or it is known what the pod needs.
	Looked struct{}
	// Allocated: all plugins have answered and the assignment is recorded.
	Allocated struct{ Pod allocation.Pod }
	// Failed: a plugin or the store failed; Pod has the answers that did come.
	Failed struct {
		Pod   allocation.Pod
		Err   error
		Began time.Time
	}
	// Resized: what the pod is allocated has been recorded, or could not be.
	Resized struct {
		Pod allocation.Pod
		Err error
	}
	// Dropped: the store has dropped the pod, or failed to.
	Dropped struct{ Err error }
)

// Effect is one of the types below: something that a step wants done, in this order, once the pod has its new
// record. The line does Adopt, Preempt, Free and Silence itself, and makes SayWait a Say.
type Effect any

type (
	// Ask has a plugin asked which devices it prefers.
	Ask struct{ allocation.Ask }
	// Inquire waits until it is known what the pod needs.
	Inquire struct{ Until time.Time }
	// Reread has what is stale read again.
	Reread struct{ What decide.Stale }
	// Assign has the plugins' Allocate called and the assignment recorded.
	Assign struct{ Pod allocation.Pod }
	// RecordResources has requests and limits recorded as allocated to the pod, with what it holds then; Held
	// is nil if that does not change.
	RecordResources struct {
		Resources podspec.Resources
		Held      *allocation.Pod
	}
	// DropRecord has the store drop what it has of the pod.
	DropRecord struct{}
	// Forgo has what the pod needs followed no longer.
	Forgo struct{}
	// Cancel ends the call that is under way.
	Cancel struct{}

	// Say reports an outcome. Ignored are the preferences that were not followed, Lack is what the pod
	// waits for beside the node; Unplanned: no plan led to the outcome.
	Say struct {
		Outcome         decide.Outcome
		Reason, Message string
		Ignored         []string
		Lack            decide.Lack
		Unplanned       bool
	}
	// SayWait reports that the pod waits, with the pods whose end it waits for.
	SayWait struct{ decide.Decision }
	// SayResize reports that the pod was allocated the resources of Pod, or is not, for a reason.
	SayResize struct {
		Pod *v1.Pod
		decide.Resizing
	}
	// SayReject reports a rejection.
	SayReject struct{ *allocation.Rejection }
	// Forget removes the pod, which has no record, and reports it released.
	Forget struct{}

	// Adopt has the pod decided on as one that runs on without a plan, for err.
	Adopt struct{ Err error }
	// Preempt has the victims of a decision end.
	Preempt struct{ decide.Decision }
	// Free has the pods that wait look whether they have a place. Resized: a resize leaves it to them.
	Free struct{ Resized bool }
	// Silence keeps the pods in line from waiting for a plugin that did not answer in time.
	Silence struct {
		Key allocation.AskKey
		Err error
	}
)
