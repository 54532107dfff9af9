package record

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Conditions hold what a step depends on beside the pod's record and the event.
type Conditions struct {
	Now time.Time
	// Wait is how long a pod may wait; 0: pods do not wait.
	Wait   time.Duration
	BootID string
	View   decide.View
	// Rereads: what is stale can be read again.
	Rereads bool
	// Recorded: the store has something of the pod.
	Recorded bool
	// Held is until when pods of its controller are not rejected.
	Held time.Time
	// Slow names the resources whose plugins took longer than Patience to answer last.
	Slow sets.Set[string]
}

// Patience is how long later pods wait for the answer about a plugin's preference.
const Patience = 100 * time.Millisecond

// SlowAnswer is after how long admission says that a pod waits for a plugin's answer.
const SlowAnswer = time.Second

// Step returns the pod's record after an event, and what is to be done. It is pure.
func (r Record) Step(e Event, c Conditions) (Record, []Effect) {
	s := step{Record: r, Conditions: c}
	switch e := e.(type) {
	case Resubmitted:
		s.resubmitted(e)
	case Asked:
		resizing{&s}.asked(e.Demand)
	case Changed:
		s.Resize.Due = true
	case Sized:
		resizing{&s}.sized(e.Resizing)
	case Left:
		s.ended = s.ended || e.Ended
		s.leave()
	case Gone:
		s.release()
	case Late:
		s.Late(e)
	case Overdue:
		s.Tries.Refused = s.State == Retrying
		s.reject(s.Tries.Refusal)
	case Moved:
		s.prompt(changed)
	case Remade:
		s.give(Queued, Reservation{Kind: Claimed})
	case Considered:
		s.considered(e.Decision)
	case Decided:
		s.Uses = e.Case.Room.Claims
		s.decided(e)
	case Ranked:
		s.ranked(e)
	default:
		s.answered(e)
	}
	return s.Record, s.effects
}

// step is one step in progress.
type step struct {
	Record
	Conditions
	effects
}

// effects are in the order in which they are carried out.
type effects []Effect

func (all *effects) do(e Effect) { *all = append(*all, e) }

// move gives the pod another state and reservation. The time of a state ends with it.
func (r *Record) move(to State, has Reservation) {
	if to != r.State {
		r.Tries.Due = time.Time{}
	}
	r.State, r.Has = to, has
}

// Displaced returns the record of a pod with a claim after a pod ahead of it got a place: it looks for a place
// again, at once or after the call under way. broken: it loses what it claims.
func (r Record) Displaced(broken bool) Record {
	has := r.Has
	if broken {
		has.Pod = allocation.Pod{}
		r.Question.Void = r.Question.Void || r.State == Asking
	}
	next, ok := r.State.next(changed)
	if !ok {
		next = r.State
	}
	r.move(next, has)
	return r
}

// Unadvised returns the record of a pod in line after a plugin did not answer about another pod in time: it is not
// asked about this one.
func (r Record) Unadvised(key allocation.AskKey, err error) Record {
	r.Preferences = r.Preferences.Answered(key, nil, err)
	r.Preferences.Advice = nil
	return r
}

// Exchanged returns the record of a pod that has other devices in place of those that a pod ahead of it got.
func (r Record) Exchanged(has allocation.Pod) Record {
	r.Has.Pod = has
	return r
}

// give is move to a reservation that may be less than the pod had: others may wait for that.
func (s *step) give(to State, has Reservation) {
	counted, before := s.Counts(), s.Has.Pod.Containers
	s.move(to, has)
	if counted && (!s.Counts() || !reflect.DeepEqual(before, has.Pod.Containers)) {
		s.do(Free{})
	}
}

// empty takes from the pod all that is not recorded.
func (s *step) empty(to State) {
	s.Preferences = decide.Preferences{}
	s.give(to, Reservation{})
}

func (s *step) sayWait(cause decide.Cause, message string) {
	s.Cause = cause
	say := Say{Outcome: decide.Wait, Reason: cause.Reason(), Message: message, Ignored: s.Preferences.Ignored}
	if cause == decide.ForObjects {
		say.Lack = s.Inquiry.Lack
	}
	s.do(say)
}

func (s *step) sayAdmit() {
	s.Cause = decide.Nothing
	s.do(Say{Outcome: decide.Admit, Ignored: s.Preferences.Ignored})
}

func (s *step) prompt(p prompt) {
	if next, ok := s.State.next(p); ok {
		s.move(next, s.Has)
	}
}

// leave takes from a pod without a place what it has. A goroutine that works for it is waited for first.
func (s *step) leave() {
	switch next, ok := s.State.next(leaving); {
	case !ok:
	case next == Withdrawn:
		s.empty(next)
	default:
		s.move(next, s.Has)
	}
	if s.Resize.recording == nil {
		resizing{s}.settle()
	}
}

// release drops what is recorded. A goroutine that works for the pod is canceled and waited for first.
func (s *step) release() {
	switch next, ok := s.State.next(release); {
	case !ok:
	case next == Canceling:
		s.move(next, s.Has)
		s.do(Cancel{})
	default:
		if s.State != Admitted && s.State != Terminating {
			s.empty(Withdrawn)
		}
		resizing{s}.settle()
		s.drop()
	}
}

// drop forgets the pod once nothing of it is recorded.
func (s *step) drop() {
	s.forgo()
	if !s.Recorded {
		if s.Counts() {
			s.do(Free{})
		}
		s.do(Forget{})
		return
	}
	s.move(Releasing, s.Has)
	s.do(DropRecord{})
}

// Late acts on a state whose time is over.
func (s *step) Late(e Late) {
	s.Tries.Due = time.Time{}
	if s.StopsLine() {
		s.Question.Slow, s.Tries.Due = true, s.Question.Asked.Add(SlowAnswer)
		return
	}
	s.Question.Late = s.State == Asking
	if s.State == Unreleased {
		s.drop()
		return
	}
	s.prompt(timeUp)
	switch {
	case e.Words != "":
		s.sayWait(e.Cause, e.Words)
	case s.State == Behind:
		s.Tries.Due = s.Now.Add(SlowAnswer) // the line moves
	}
}

// considered has what is stale read again, once. Of a pod that could not start it needs no more. Else
// the pod stays queued.
func (s *step) considered(d decide.Decision) {
	stale := d.Stale()
	if !s.Rereads || stale == 0 || s.Tries.Reread&stale != 0 {
		s.hinder(d)
		return
	}
	s.Tries.Reread |= stale
	s.move(Rereading, s.Has)
	s.Tries.Due = s.Now.Add(SlowAnswer)
	s.do(Reread{stale})
}

// decided acts on the decision on the pod that the pass came to.
func (s *step) decided(d Decided) {
	if s.hinder(d.Decision) {
		return
	}
	if s.Waited(s.Now) < s.Wait {
		d.Decision = s.Inquiry.overtaken(d.Decision)
	}
	switch {
	case s.Inquiry.looks(d.Decision, s.Waited(s.Now)):
		s.inquire(d.Decision)
	case d.Outcome == decide.Admit:
		s.admit(d)
	case d.Outcome == decide.Wait:
		s.waitFor(d.Decision)
	default:
		s.Tries.Refused = false
		s.reject(d.Rejection)
	}
}

// admit acts on a positive decision: it asks the plugin for a preference, or reserves and has
// Allocate called and the assignment recorded, or admits at once if nothing is assigned.
func (s *step) admit(d Decided) {
	plan := d.Case.Plan
	switch {
	case d.Kind == decide.Adopted || d.Kind == decide.Unplanned:
		s.empty(Admitted)
		s.Has = Reservation{Pod: d.Held}
		s.Cause = decide.Nothing
		s.do(Say{Outcome: decide.Admit, Reason: d.Reason, Message: d.Message, Unplanned: true})
	case plan.Ask != nil:
		// The pod keeps what it has meanwhile, or what it would get without advice, so that the pods
		// behind it do not get ahead. The advice may lead to other devices in the end.
		has := s.Has
		if len(plan.Pod.Containers) > 0 && !d.Contested {
			has = Reservation{Placed, plan.Pod}
		}
		s.give(Asking, has)
		resource := plan.Ask.AskKey.Resource
		s.Question = Question{Resource: resource, Asked: s.Now, Slow: s.Slow.Has(resource)}
		s.Tries.Due = s.Now.Add(Patience)
		if s.Question.Slow {
			s.Tries.Due = s.Now.Add(SlowAnswer)
		}
		s.do(Ask{*plan.Ask})
	case plan.Pod.IsEmpty() && !s.HasClaims:
		s.give(Admitted, Reservation{})
		s.sayAdmit()
	default:
		reserved := plan.Pod
		reserved.BootID = s.BootID
		s.Tries.InvalidCPUs = !s.View.Sound(s.Pod, reserved)
		s.give(Allocating, Reservation{Pod: reserved})
		s.Tries.Due = s.Now.Add(SlowAnswer)
		s.do(Assign{reserved})
	}
}

// waitFor lets the pod wait with a claim, or without anything for a handler.
func (s *step) waitFor(d decide.Decision) {
	if d.Kind.HoldsNothing() {
		s.empty(Deferred)
		s.Tries.Refusal, s.Cause = d.Rejection, d.Cause
		say := Say{Outcome: decide.Wait, Reason: d.Reason, Message: d.Message, Unplanned: d.Kind == decide.Hindered}
		if say.Unplanned {
			say.Lack = s.Inquiry.Lack
		}
		s.do(say)
		return
	}
	// The message has numbers; that these go up and down is no news.
	same := s.Claims() && s.Cause == d.Cause && d.Cause != decide.ForPlugin
	to := Waiting
	switch d.Kind {
	case decide.PendingRelease:
		to, same = PendingRelease, true
	case decide.Preempting:
		to, s.Tries.HasPreempted = PendingRelease, true
		s.do(Preempt{d})
	}
	s.give(to, Reservation{Claimed, d.Claim})
	if d.Kind == decide.PendingRelease && s.Tries.Due.IsZero() {
		s.Tries.Due = s.Now.Add(SlowAnswer)
	}
	s.Preferences = decide.Preferences{}
	if !same {
		s.Cause = d.Cause
		s.do(SayWait{d})
	}
}

// ranked lets the pod stand in line, with a place if there is one. Its plugins are asked about it when it is
// known what is free.
func (s *step) ranked(e Ranked) {
	has := s.Has
	if !s.Claims() && (has.Kind != Assigned || !s.IsReserved()) {
		has = Reservation{}
		if len(e.Place.Containers) > 0 && !s.Inquiry.Overtaken {
			has = Reservation{Placed, e.Place}
		}
	}
	s.Preferences.Advice = nil
	s.After, s.ForSlot = e.After, e.ForSlot
	s.give(Behind, has)
	s.Tries.Due = s.Now.Add(SlowAnswer)
}

// reject rejects the pod, or holds it back if others of its controller were rejected lately.
func (s *step) reject(r *allocation.Rejection) {
	until := s.Held
	if s.Tries.held.After(s.Now) {
		until = s.Tries.held // the pod was tried again before its time was over
	}
	if s.Wait <= 0 || !until.After(s.Now) {
		s.forgo()
		s.empty(Rejected)
		s.Cause = decide.Nothing
		s.do(SayReject{r})
		return
	}
	s.empty(HeldBack)
	s.Tries.Due, s.Tries.held = until, until
	s.sayWait(decide.ForController, fmt.Sprintf("%s: %s; pods of its controller were rejected "+
		"before, so that this one is held back until %s, or until it has a place", r.Reason,
		r.Message, until.Format(time.TimeOnly)))
}
