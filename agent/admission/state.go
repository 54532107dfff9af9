package admission

import "fmt"

// state says how far admission has come with a pod.
type state int

const (
	// queued: the pod is decided on at its turn, and keeps until then what it has.
	queued state = iota
	// asking: a plugin is asked for its preference.
	asking
	// inquiring: the API server is asked whether what the pod needs is there.
	inquiring
	// behind: the pod stands in line behind one that plugins are asked about.
	behind
	// rereading: the machine or the node's object is read again.
	rereading
	// allocating: the plugins' Allocate is called and the assignment recorded.
	allocating
	// waiting: the pod has a claim, and no place until something changes.
	waiting
	// pendingRelease: as waiting, without a deadline: the pod waits for pods that have ended, whose holdings
	// are free to the kubelet, or for pods that make way for it.
	pendingRelease
	// retrying: a plugin or the store failed and is tried again; the pod keeps its reservation.
	retrying
	// deferred: a handler lets the pod wait, or its resource claims where pods do not wait for more; it
	// has nothing.
	deferred
	// heldBack: the pod has no place and nothing. It is rejected later, since other pods of its
	// controller were rejected lately.
	heldBack
	// admitted: the pod holds its assignment.
	admitted
	// rejected: the pod has nothing, and is remembered so that it is not decided on twice.
	rejected
	// terminating: the pod was admitted and terminates; what it holds will be free.
	terminating
	// withdrawn: the pod terminates and had no place.
	withdrawn
	// finishing: the pod terminates while asking, rereading or allocating is under way.
	finishing
	// canceling: the pod was released while a call was under way, which is being ended.
	canceling
	// releasing: the store drops what it has of the pod.
	releasing
	// unreleased: dropping failed and is tried again.
	unreleased
)

var stateNames = [...]string{
	"queued", "asking", "inquiring", "behind", "rereading", "allocating", "waiting", "pendingRelease", "retrying", "deferred",
	"heldBack", "admitted", "rejected", "terminating", "withdrawn", "finishing", "canceling",
	"releasing", "unreleased",
}

func (s state) String() string { return stateNames[s] }

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
func (s state) next(p prompt) (next state, ok bool) {
	const stay = state(-1)
	var row [4]state
	switch s {
	//                  leaving      release    timeUp     changed
	case queued, rejected:
		row = [...]state{withdrawn, releasing, stay, stay}
	case asking, inquiring, rereading, allocating:
		row = [...]state{finishing, canceling, stay, stay}
	case waiting, retrying, deferred, heldBack:
		row = [...]state{withdrawn, releasing, queued, queued}
	case pendingRelease, behind:
		row = [...]state{withdrawn, releasing, stay, queued}
	case admitted:
		row = [...]state{terminating, releasing, stay, queued}
	case terminating, withdrawn:
		row = [...]state{stay, releasing, stay, stay}
	case finishing:
		row = [...]state{stay, canceling, stay, stay}
	case canceling, releasing:
		row = [...]state{stay, stay, stay, stay}
	case unreleased:
		row = [...]state{stay, stay, releasing, stay}
	default:
		panic(fmt.Sprintf("admission: state %d", int(s)))
	}
	return row[p], row[p] != stay
}

// goes reports whether the pod will give back what it has.
func (s state) goes() bool { return s >= terminating }

// goesNow reports whether the pod is gone and its release is being recorded.
func (s state) goesNow() bool { return s == canceling || s == releasing }

// mayBeDisplaced reports whether a pod ahead may take what the pod, if it has a claim, claims.
func (s state) mayBeDisplaced() bool {
	switch s {
	case waiting, pendingRelease, behind, asking, inquiring, rereading:
		return true
	}
	return false
}

// underWay reports whether a goroutine works for the pod.
func (s state) underWay() bool {
	switch s {
	case asking, inquiring, rereading, allocating, finishing, canceling, releasing:
		return true
	}
	return false
}
