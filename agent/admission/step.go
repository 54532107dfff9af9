package admission

import (
	"fmt"
	"reflect"
	"time"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/claims/claim"
)

// conditions hold what a step depends on beside the pod's record and the event.
type conditions struct {
	now time.Time
	// wait is how long a pod may wait; 0: pods do not wait.
	wait   time.Duration
	bootID string
	view   decide.View
	// rereads: what is stale can be read again.
	rereads bool
	// recorded: the store has something of the pod.
	recorded bool
	// held is until when pods of its controller are not rejected.
	held time.Time
}

// slowAnswer is after how long admission says that a pod waits for a plugin's answer.
const slowAnswer = time.Second

// step returns the pod's record after an event, and what is to be done. It is pure.
func (r record) step(e event, c conditions) (record, []effect) {
	s := step{record: r, conditions: c}
	switch e := e.(type) {
	case resubmitted:
		s.resubmitted(e)
	case left:
		s.ended = s.ended || e.ended
		s.leave()
	case gone:
		s.release()
	case late:
		s.late(e)
	case overdue:
		s.reject(s.tries.refusal)
	case moved:
		s.prompt(changed)
	case remade:
		s.give(queued, reservation{kind: claimed})
	case learned:
		if s.inquiry.aside && s.inquiry.lack.Unknown {
			s.tries.since = s.now // time does not pass while the API server does not answer
		}
		s.inquiry.lack = e.lack
	case considered:
		s.considered(e.Decision)
	case decided:
		s.uses = e.Case.Room.Claims
		s.decided(e)
	case ranked:
		s.ranked(e)
	case displaced:
		s.displaced(e)
	case exchanged:
		s.has.pod = e.pod
	case outguessed:
		s.after, s.question.void = "", s.state == asking
		s.give(s.state, reservation{kind: tentative})
	case unheard:
		s.preferences = s.preferences.Answered(e.key, nil, e.err)
		s.preferences.Advice = nil
	default:
		s.answered(e)
	}
	return s.record, s.effects
}

// step is one step in progress.
type step struct {
	record
	conditions
	effects
}

// effects are in the order in which they are carried out.
type effects []effect

func (all *effects) do(e effect) { *all = append(*all, e) }

// move gives the pod another state and reservation. The time of a state ends with it.
func (r *record) move(to state, has reservation) {
	if to != r.state {
		r.tries.due = time.Time{}
	}
	r.state, r.has = to, has
}

// displaced has a pod with a claim look for a place again, at once or after the call under way.
func (r *record) displaced(e displaced) {
	has := r.has
	if e.broken {
		has.pod = allocation.Pod{}
		r.question.void = r.question.void || r.state == asking
	}
	next, ok := r.state.next(changed)
	if !ok {
		next = r.state
	}
	r.move(next, has)
}

// give is move to a reservation that may be less than the pod had: others may wait for that.
func (s *step) give(to state, has reservation) {
	counted, before := s.counts(), s.has.pod.Containers
	s.move(to, has)
	if counted && (!s.counts() || !reflect.DeepEqual(before, has.pod.Containers)) {
		s.do(free{})
	}
}

// empty takes from the pod all that is not recorded.
func (s *step) empty(to state) {
	s.preferences = decide.Preferences{}
	s.give(to, reservation{})
}

func (s *step) say(outcome decide.Outcome, reason, message string) {
	s.cause = ""
	if outcome == decide.Wait {
		s.cause = reason
	}
	s.do(say{outcome: outcome, reason: reason, message: message, ignored: s.preferences.Ignored})
}

func (s *step) prompt(p prompt) {
	if next, ok := s.state.next(p); ok {
		s.move(next, s.has)
	}
}

// leave takes from a pod without a place what it has. What a goroutine has begun is waited for.
func (s *step) leave() {
	switch next, ok := s.state.next(leaving); {
	case !ok:
	case next == withdrawn:
		s.empty(next)
	default:
		s.move(next, s.has)
	}
}

// release drops what is recorded. What a goroutine has begun is ended and waited for before.
func (s *step) release() {
	switch next, ok := s.state.next(release); {
	case !ok:
	case next == canceling:
		s.move(next, s.has)
		s.do(cancel{})
	default:
		if s.state != admitted && s.state != terminating {
			s.empty(withdrawn)
		}
		s.drop()
	}
}

// drop forgets the pod once nothing of it is recorded.
func (s *step) drop() {
	s.forgo()
	if !s.recorded {
		if s.counts() {
			s.do(free{})
		}
		s.do(forget{})
		return
	}
	s.move(releasing, s.has)
	s.do(dropRecord{})
}

// late acts on a state whose time is over.
func (s *step) late(e late) {
	s.tries.due = time.Time{}
	s.question.late = s.state == asking
	if s.state == unreleased {
		s.drop()
		return
	}
	s.prompt(timeUp)
	switch {
	case e.words != "":
		s.say(decide.Wait, e.reason, e.words)
	case s.state == behind:
		s.tries.due = s.now.Add(slowAnswer) // the line moves
	}
}

// considered has what is stale read again, once. Of a pod that could not start it needs no more. Else
// the pod stays queued.
func (s *step) considered(d decide.Decision) {
	stale := d.Stale()
	if !s.rereads || stale == 0 || s.tries.reread&stale != 0 {
		s.hinder(d)
		return
	}
	s.tries.reread |= stale
	s.move(rereading, s.has)
	s.tries.due = s.now.Add(slowAnswer)
	s.do(reread{stale})
}

// decided acts on the decision on a pod whose turn it was.
func (s *step) decided(d decided) {
	if s.hinder(d.Decision) {
		return
	}
	if s.waited(s.now) < s.wait {
		d.Decision = s.inquiry.overtaken(d.Decision)
	}
	switch {
	case s.inquiry.looks(d.Decision, s.waited(s.now)):
		s.inquire(d.Decision)
	case d.Outcome == decide.Admit:
		s.admit(d)
	case d.Outcome == decide.Wait:
		s.waitFor(d.Decision)
	default:
		s.reject(d.Rejection)
	}
}

// admit acts on a positive decision: it asks the plugin for a preference, or reserves and has
// Allocate called and the assignment recorded, or admits at once if nothing is assigned.
func (s *step) admit(d decided) {
	plan := d.Case.Plan
	switch {
	case d.Kind == decide.Adopted || d.Kind == decide.Unplanned:
		s.empty(admitted)
		s.has = reservation{pod: d.Held}
		s.cause = ""
		s.do(say{outcome: decide.Admit, reason: d.Reason, message: d.Message, unplanned: true})
	case plan.Ask != nil:
		// The pod keeps its claim meanwhile, or what it would get without advice, so that the pods
		// behind it do not get ahead. The advice may lead to other devices in the end.
		has := s.has
		if len(plan.Pod.Containers) > 0 && !d.contested {
			has = reservation{tentative, plan.Pod}
			s.do(outguess{allocation.TakenBy(plan.Pod)})
		}
		s.give(asking, has)
		s.question = question{resource: plan.Ask.AskKey.Resource}
		s.tries.due = s.now.Add(slowAnswer)
		s.do(ask{*plan.Ask})
	case plan.Pod.IsEmpty() && !claim.Any(s.Pod):
		s.give(admitted, reservation{})
		s.say(decide.Admit, "", "")
	default:
		reserved := plan.Pod
		reserved.BootID = s.bootID
		s.tries.unsound = !s.view.Sound(s.Pod, reserved)
		s.do(outguess{allocation.TakenBy(reserved)})
		s.give(allocating, reservation{pod: reserved})
		s.tries.due = s.now.Add(slowAnswer)
		s.do(assign{reserved})
	}
}

// waitFor lets the pod wait with a claim, or without anything for a handler.
func (s *step) waitFor(d decide.Decision) {
	if d.Kind.HoldsNothing() {
		s.empty(deferred)
		s.tries.refusal, s.cause = d.Rejection, d.Reason
		s.do(say{outcome: decide.Wait, reason: d.Reason, message: d.Message,
			unplanned: d.Kind == decide.Hindered})
		return
	}
	// The message has numbers; that these go up and down is no news.
	same := s.claims() && s.cause == d.Reason && d.Reason != decide.ReasonWaitPlugin
	to := waiting
	switch d.Kind {
	case decide.PendingRelease:
		to, same = pendingRelease, true
	case decide.Preempting:
		to, s.tries.madeWay = pendingRelease, true
		s.do(preempt{d})
	}
	s.give(to, reservation{claimed, d.Claim})
	if d.Kind == decide.PendingRelease && s.tries.due.IsZero() {
		s.tries.due = s.now.Add(slowAnswer)
	}
	s.preferences = decide.Preferences{}
	if !same {
		s.cause = d.Reason
		s.do(sayWait{d})
	}
}

// ranked lets the pod stand in line. It is asked about when it is known what is free.
func (s *step) ranked(e ranked) {
	has := s.has
	if !s.claims() && (has.kind != assigned || !s.isReserved()) {
		has = reservation{}
		// Those whom it let go before have made their guesses.
		if len(e.guess.Containers) > 0 && !s.inquiry.aside {
			has = reservation{tentative, e.guess}
			// Those behind made theirs without it. Of devices, only chosen ones are its own already.
			s.do(outguess{allocation.Taken{}.With(allocation.CPUs(e.guess.CPUs()))})
		}
	}
	s.preferences.Advice = nil
	s.after, s.forTurn = e.after, e.turn
	s.give(behind, has)
	if len(s.Chosen) > 0 && s.guesses() && s.isReserved() {
		s.do(outguess{allocation.Taken{}.With(allocation.DeviceIDs(s.Choices()))})
	}
	s.tries.due = s.now.Add(slowAnswer)
}

// reject rejects the pod, or holds it back if others of its controller were rejected lately.
func (s *step) reject(r *allocation.Rejection) {
	until := s.held
	if s.tries.held.After(s.now) {
		until = s.tries.held // the pod was tried again before its time was over
	}
	if s.wait <= 0 || !until.After(s.now) {
		s.forgo()
		s.empty(rejected)
		s.cause = ""
		s.do(sayReject{r})
		return
	}
	s.empty(heldBack)
	s.tries.due, s.tries.held = until, until
	s.say(decide.Wait, decide.ReasonHeld, fmt.Sprintf("%s: %s; pods of its controller were rejected "+
		"before, so that this one is held back until %s, or until it has a place", r.Reason,
		r.Message, until.Format(time.TimeOnly)))
}
