package record

import "fmt"

// State says how far admission has come with a pod.
type State int

const (
	// Queued: the pod is decided on at its turn, and keeps until then what it has.
	Queued State = iota
	// Asking: a plugin is asked for its preference.
	Asking
	// Inquiring: the API server is asked whether what the pod needs is there.
	Inquiring
	// Behind: the pod stands in line behind one that plugins are asked about.
	Behind
	// Rereading: the machine or the node's object is read again.
	Rereading
	// Allocating: the plugins' Allocate is called and the assignment recorded.
	Allocating
	// Waiting: the pod has a claim, and no place until something changes.
	Waiting
	// PendingRelease: as waiting, without a deadline: the pod waits for pods that have ended, whose holdings
	// are free to the kubelet, or for pods that make way for it.
	PendingRelease
	// Retrying: a plugin or the store failed and is tried again; the pod keeps its reservation.
	Retrying
	// Deferred: a handler lets the pod wait, or its resource claims where pods do not wait for more; it
	// has nothing.
	Deferred
	// HeldBack: the pod has no place and nothing. It is rejected later, since other pods of its
	// controller were rejected lately.
	HeldBack
	// Admitted: the pod holds its assignment.
	Admitted
	// Resizing: as admitted, and other requests and limits are being recorded as allocated.
	Resizing
	// Rejected: the pod has nothing, and is remembered so that it is not decided on twice.
	Rejected
	// Terminating: the pod was admitted and terminates; what it holds will be free.
	Terminating
	// Withdrawn: the pod terminates and had no place.
	Withdrawn
	// Finishing: the pod terminates while asking, rereading, allocating or resizing is under way.
	Finishing
	// Canceling: the pod was released while a call was under way, which is being ended.
	Canceling
	// Releasing: the store drops what it has of the pod.
	Releasing
	// Unreleased: dropping failed and is tried again.
	Unreleased
)

var stateNames = [...]string{
	"queued", "asking", "inquiring", "behind", "rereading", "allocating", "waiting", "pendingRelease", "retrying", "deferred",
	"heldBack", "admitted", "resizing", "rejected", "terminating", "withdrawn", "finishing", "canceling",
	"releasing", "unreleased",
}

func (s State) String() string { return stateNames[s] }

// prompt is an event whose next state depends on the state alone.
type prompt int

const (
	leaving prompt = iota // the pod has begun to terminate
	release               // what it has is given back
	timeUp                // the time of its state is over
	changed               // something changed that it may have waited for
)

// next returns the state after a prompt; ok is false if the prompt changes nothing in this state,
// such as one that comes late.
func (s State) next(p prompt) (next State, ok bool) {
	const stay = State(-1)
	var row [4]State
	switch s {
	//                  leaving      release    timeUp     changed
	case Queued, Rejected:
		row = [...]State{Withdrawn, Releasing, stay, stay}
	case Asking, Inquiring, Rereading, Allocating, Resizing:
		row = [...]State{Finishing, Canceling, stay, stay}
	case Waiting, Retrying, Deferred, HeldBack:
		row = [...]State{Withdrawn, Releasing, Queued, Queued}
	case PendingRelease, Behind:
		row = [...]State{Withdrawn, Releasing, stay, Queued}
	case Admitted:
		row = [...]State{Terminating, Releasing, stay, Queued}
	case Terminating, Withdrawn:
		row = [...]State{stay, Releasing, stay, stay}
	case Finishing:
		row = [...]State{stay, Canceling, stay, stay}
	case Canceling, Releasing:
		row = [...]State{stay, stay, stay, stay}
	case Unreleased:
		row = [...]State{stay, stay, Releasing, stay}
	default:
		panic(fmt.Sprintf("admission: state %d", int(s)))
	}
	return row[p], row[p] != stay
}

// Goes reports whether the pod will give back what it has.
func (s State) Goes() bool { return s >= Terminating }

// GoesNow reports whether the pod is gone and its release is being recorded.
func (s State) GoesNow() bool { return s == Canceling || s == Releasing }

// MayBeDisplaced reports whether a pod ahead may take what the pod, if it has a claim, claims.
func (s State) MayBeDisplaced() bool {
	switch s {
	case Waiting, PendingRelease, Behind, Asking, Inquiring, Rereading:
		return true
	}
	return false
}

// UnderWay reports whether a goroutine works for the pod.
func (s State) UnderWay() bool {
	switch s {
	case Asking, Inquiring, Rereading, Allocating, Resizing, Finishing, Canceling, Releasing:
		return true
	}
	return false
}
