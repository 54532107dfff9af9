package admission

import "fmt"

// state is how far admission has come with a pod.
type state int

const (
	// queued: it is decided on at its turn. Until then it keeps what it has.
	queued state = iota
	// asking: a plugin is asked for its preference.
	asking
	// behind: it stands in line behind a pod that plugins are asked about.
	behind
	// rereading: the machine is looked at again.
	rereading
	// allocating: its plugins' Allocate is called and its assignment is recorded.
	allocating
	// waiting: it has a claim, and no place until something changes.
	waiting
	// brief: as waiting, whatever its deadline: for pods that have ended, since to the kubelet what
	// they held is free, or for pods that make way for one that is critical.
	brief
	// retrying: a plugin or the store failed and is tried again; it keeps its reservation.
	retrying
	// deferred: a handler has it wait; it has nothing.
	deferred
	// heldBack: it has no place and is not rejected yet, since other pods of its controller were; it has
	// nothing.
	heldBack
	// admitted: it holds its assignment.
	admitted
	// rejected: it has nothing, and is remembered so that it is not decided on twice.
	rejected
	// terminating: it was admitted and terminates; what it holds will be free.
	terminating
	// withdrawn: it terminates and had no place.
	withdrawn
	// finishing: it terminates, and what asking, rereading or allocating began is under way.
	finishing
	// canceling: it was released, and what was under way is being ended.
	canceling
	// releasing: what is recorded of it is being dropped.
	releasing
	// unreleased: dropping it failed and is tried again.
	unreleased
)

// event is what happens to a pod from outside. What a goroutine brings back is no event of the
// table: it depends on the answer.
type event int

const (
	leave   event = iota // it has begun to terminate
	release              // what it has is given back
	timeUp               // the time that its state has is over
	change               // something changed that it may have waited for
)

// stay: the event changes nothing in that state, such as one that comes late.
const stay state = -1

// transition is the table of states and events; doc.go has it as a picture.
func transition(s state, ev event) state {
	switch s {
	//                         leave        release     timeUp     change
	case queued, rejected:
		return [...]state{withdrawn, releasing, stay, stay}[ev]
	case asking, rereading, allocating:
		return [...]state{finishing, canceling, stay, stay}[ev]
	case waiting, retrying, deferred, heldBack:
		return [...]state{withdrawn, releasing, queued, queued}[ev]
	case brief, behind:
		return [...]state{withdrawn, releasing, stay, queued}[ev]
	case admitted:
		return [...]state{terminating, releasing, stay, queued}[ev]
	case terminating, withdrawn:
		return [...]state{stay, releasing, stay, stay}[ev]
	case finishing:
		return [...]state{stay, canceling, stay, stay}[ev]
	case canceling, releasing:
		return [...]state{stay, stay, stay, stay}[ev]
	case unreleased:
		return [...]state{stay, stay, releasing, stay}[ev]
	}
	panic(fmt.Sprintf("admission: state %d", s))
}

// goes reports whether the pod will give back what it has.
func (s state) goes() bool { return s >= terminating }

// goesNow reports whether the pod is gone, and that what it held is free is being recorded.
func (s state) goesNow() bool { return s == canceling || s == releasing }

// underWay reports whether a goroutine works for the pod.
func (s state) underWay() bool {
	switch s {
	case asking, rereading, allocating, finishing, canceling, releasing:
		return true
	}
	return false
}
