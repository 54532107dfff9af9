package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
)

// admitter decides on the pods of a queue, and does what follows. It is owned by Run, but for the
// explanations.
type admitter struct {
	cfg          Config
	pods         *pods
	view         view
	calls        calls
	repeats      repeats
	explanations explanations
}

// attempt decides on one pod with what is known now, and does what follows.
func (a *admitter) attempt(ctx context.Context, e *entry, t *turn) {
	d, others := a.choose(e, t)
	if a.reread(ctx, e, d.stale()) {
		return
	}
	if other := a.before(e, &d, t); other != nil {
		a.standBehind(e, other, &d)
		return
	}
	if (d.kind == planned || d.kind == checked) && d.Outcome != Admit {
		a.reconsider(e, &d, t)
	}
	if log := klog.FromContext(ctx).V(4); log.Enabled() {
		for _, m := range d.Case.Attempt().Merges {
			log.Info("Merged topology hints", "pod", klog.KObj(e.pod),
				"container", m.Container, "offers", m.Offers, "merged", m.Merged,
				"admit", m.Admitted)
		}
	}
	switch d.Outcome {
	case Admit:
		if d.Case.Plan.Ask == nil {
			others.take(a.pods)
		}
		a.admit(ctx, e, d)
	case Wait:
		a.wait(e, d)
	default:
		a.reject(e, d.rejection)
	}
}

// decide is the decision on an entry beside what the ledger has.
func (a *admitter) decide(e *entry, ledger allocation.Ledger, t *turn) Decision {
	s := a.cfg.snapshot(a.view, ledger)
	s.ahead, s.patient = t.ahead, !a.expired(e, t.now)
	r := a.pods.request(e)
	if a.cfg.Wait <= 0 && !e.runs {
		r.own = a.view.withoutAway(r.own)
	}
	began := time.Now()
	d := decide(&s, &r)
	e.told.decided(d, basisOf(s, r, d), time.Since(began))
	return d
}

func (p *pods) request(e *entry) request {
	r := request{
		pod: e.pod, in: e.pod.UID, own: p.own(e), runs: e.runs,
		advice: e.preferences.advice, silent: e.preferences.silent, madeWay: e.tries.madeWay,
	}
	if e.claims() {
		r.claimed, r.claim = true, e.has.pod
	}
	return r
}

// admit lets the pod have its plan, as far as it is one: advice may be wanted first, answers of
// plugins and the durable commit are.
func (a *admitter) admit(ctx context.Context, e *entry, d Decision) {
	plan := d.Case.Plan
	switch {
	case d.kind == adopted || d.kind == unplanned:
		a.adopt(e, d)
	case plan.Ask != nil:
		// What the pod would get without advice is its own meanwhile, or what it claims, so that the
		// pods behind it do not get ahead. The advice may lead to other devices in the end.
		has := e.has
		if len(plan.Pod.Containers) > 0 && !a.claimsContested(e) {
			has = reservation{tentative, plan.Pod}
		}
		a.pods.give(e, asking, has)
		a.start(ctx, e, func(ctx context.Context) completion {
			return a.calls.ask(ctx, e.pod, *plan.Ask)
		})
	case plan.Pod.IsEmpty():
		a.pods.give(e, admitted, reservation{})
		a.say(e, Admit, "", "")
	default:
		reserved := plan.Pod
		reserved.BootID = a.cfg.BootID
		e.tries.unsound = !a.view.sound(e.pod, reserved)
		a.unguess(e, reserved)
		a.pods.give(e, allocating, reservation{pod: reserved})
		a.start(ctx, e, func(ctx context.Context) completion {
			return a.calls.assign(ctx, reserved)
		})
	}
}

// adopt admits a pod that runs with what is recorded of it.
func (a *admitter) adopt(e *entry, d Decision) {
	a.pods.drop(e, admitted)
	a.pods.move(e, admitted, reservation{pod: d.Held})
	e.told.tried = nil
	a.say(e, Admit, d.Reason, d.Message)
}

// start has a goroutine work for the pod. The first time it may take what it takes, trying again
// ends at the pod's deadline.
func (a *admitter) start(ctx context.Context, e *entry, f func(context.Context) completion) {
	e.tries.due = time.Now().Add(slowAnswer)
	var deadline time.Time
	if e.tries.retries > 0 {
		deadline = e.tries.since.Add(a.cfg.Wait)
	}
	a.calls.start(ctx, e, deadline, f)
}

// wait has the pod wait with a claim, or without anything for a handler.
func (a *admitter) wait(e *entry, d Decision) {
	if d.kind == checked {
		a.pods.drop(e, deferred)
		e.tries.refusal = d.rejection
		a.say(e, Wait, d.Reason, d.Message)
		return
	}
	// The message has numbers; that these go up and down is no news.
	same := e.claims() && e.told.last.Reason == d.Reason && d.Reason != ReasonWaitPlugin
	to := waiting
	switch d.kind {
	case soon:
		to, same = brief, true
	case preempting:
		to, e.tries.madeWay = brief, true
		a.preempt(d)
	}
	a.pods.give(e, to, reservation{claim, d.claim})
	if d.kind == soon && e.tries.due.IsZero() {
		e.tries.due = time.Now().Add(slowAnswer)
	}
	e.preferences = preferences{}
	if !same {
		a.say(e, Wait, d.Reason, a.pods.naming(d))
	}
}

// reject rejects the pod, or holds it back if others of its controller were rejected lately.
func (a *admitter) reject(e *entry, r *allocation.Rejection) {
	if a.hold(e, r, time.Now()) {
		return
	}
	a.pods.drop(e, rejected)
	if e.told.tried != nil {
		e.told.tried.Err = r
	}
	e.told.blamed = a.blame(r)
	a.say(e, Reject, r.Reason, r.Message)
}

// blame says whose call a rejection comes of, which the kubelet's words leave out; "" if of none.
func (a *admitter) blame(r *allocation.Rejection) string {
	call, ok := errors.AsType[*callError](r.Err)
	if !ok {
		return ""
	}
	text := "the call was Allocate of the device plugin of " + call.resource
	if p, ok := a.cfg.Plugins.(interface{ Endpoint(resource string) string }); ok {
		text += " on " + p.Endpoint(call.resource)
	}
	return text
}

// hold reports whether the pod is held back.
func (a *admitter) hold(e *entry, r *allocation.Rejection, now time.Time) bool {
	owner := ownerOf(e.pod)
	until := a.repeats.until(owner, now)
	if e.tries.held.After(now) {
		until = e.tries.held // it was tried again before its time was over
	}
	if a.cfg.Wait <= 0 || !until.After(now) {
		a.repeats.rejected(owner, now)
		return false
	}
	a.pods.drop(e, heldBack)
	e.tries.due, e.tries.held = until, until
	a.say(e, Wait, ReasonHeld, fmt.Sprintf("%s: %s; pods of its controller were rejected before, so "+
		"that this one is held back until %s, or until it has a place", r.Reason, r.Message,
		until.Format(time.TimeOnly)))
	return true
}

// drop forgets an entry; what the store has of it is dropped first.
func (a *admitter) drop(ctx context.Context, e *entry) {
	stored, recorded := a.pods.stored.Pods[e.pod.UID]
	if !recorded {
		a.explanations.drop(e.pod.UID)
		a.pods.remove(e)
		a.cfg.Report(Result{Pod: e.pod, Outcome: Released})
		return
	}
	a.pods.move(e, releasing, e.has)
	change := allocation.Change{
		Drop: e.pod.UID, Owe: allocation.Owes(stored, allocation.Pod{}, a.cfg.mayWant),
	}
	a.calls.start(ctx, e, time.Time{}, func(ctx context.Context) completion {
		return completion{err: a.cfg.Store.Commit(ctx, change)}
	})
}

// completed continues with an entry whose goroutine is back.
func (a *admitter) completed(e *entry, c completion) {
	switch e.state {
	case asking:
		e.preferences = e.preferences.answered(c.asked, c.advice, c.err)
		if mayPass(c.err) {
			a.silence(c)
		}
		a.pods.move(e, queued, e.has)
	case rereading:
		a.pods.move(e, queued, e.has)
	case finishing:
		if !c.assigned {
			a.pods.drop(e, withdrawn)
			return
		}
		a.pods.move(e, terminating, reservation{pod: c.reserved})
		a.say(e, Admit, "", "")
	case allocating:
		if c.err != nil {
			a.failed(e, c)
			return
		}
		a.pods.move(e, admitted, reservation{pod: c.reserved})
		a.say(e, Admit, "", "")
		e.preferences = preferences{}
	default:
		panic(fmt.Sprintf("admission: an answer in state %d", e.state))
	}
}

// failed decides what an error of a plugin or of the store means for the pod.
func (a *admitter) failed(e *entry, c completion) {
	now := time.Now()
	refusal := allocation.Unexpected(c.err)
	switch {
	case e.runs:
		a.pods.drop(e, queued)
		s, r := a.cfg.snapshot(a.view, a.pods.ledger), a.pods.request(e)
		a.adopt(e, s.adopt(Decision{Pod: e.pod}, &r, c.err, adopted))
		return
	case !errors.Is(c.err, errCommit) && !mayPass(c.err), a.expired(e, now):
		a.reject(e, refusal)
		return
	case !e.tries.unsound && !a.view.sound(e.pod, c.reserved): // the machine changed meanwhile
		a.pods.give(e, queued, reservation{kind: claim})
		return
	}
	// The reservation is kept, with the answers that did come.
	a.pods.move(e, retrying, reservation{pod: c.reserved})
	e.tries.refusal = refusal
	e.tries.due = c.began.Add(min(time.Second<<min(e.tries.retries, 4), 10*time.Second))
	if e.tries.due.Before(now) {
		e.tries.due = now // the call took so long that the next one is the way to wait
	}
	e.tries.retries++
	reason, message := ReasonWaitPlugin, c.err.Error()
	if errors.Is(c.err, errCommit) {
		reason = ReasonWaitStore
	}
	if call, ok := errors.AsType[*callError](c.err); ok {
		message = fmt.Sprintf("the device plugin of %s failed: %v", call.resource, call.error)
	}
	a.say(e, Wait, reason, message)
}

// saySlow tells of a plugin that takes its time; that it is called again was told. Where pods do
// not wait there is nothing to tell: like the kubelet's, such a pod is pending until Allocate
// returns.
func (a *admitter) saySlow(e *entry) {
	if a.cfg.Wait <= 0 || e.tries.retries > 0 || e.runs || e.state.goes() {
		return
	}
	if resources := e.unanswered(); len(resources) > 0 {
		message := "no answer to Allocate yet from the device plugin of " +
			strings.Join(resources, ", ")
		if p, ok := a.cfg.Plugins.(deadliner); ok {
			message += fmt.Sprintf("; it has %s for that", p.AllocateDeadline())
		}
		a.say(e, Wait, ReasonWaitPlugin, message)
	}
}

// sayOwed tells of a plugin that takes its time to take note of a release. For as long as it may
// take, pods wait for it that may not wait otherwise.
func (a *admitter) sayOwed(e *entry) {
	if owed := a.pods.owed(e.has.pod); owed != "" {
		a.say(e, Wait, ReasonWaitPlugin, owed)
	}
}

// deadliner are plugins of which is known how long they may take to answer Allocate.
type deadliner interface{ AllocateDeadline() time.Duration }

// say reports an outcome once.
func (a *admitter) say(e *entry, outcome Outcome, reason, message string) {
	last := e.told.last
	if outcome == last.Outcome && reason == last.Reason && message == last.Message {
		return
	}
	r := Result{Pod: e.pod, Outcome: outcome, Reason: reason, Message: message}
	r.Reworded = !e.told.newCause(r) && outcome == last.Outcome && reason == last.Reason
	e.told.last = r
	if outcome == Admit {
		a.repeats.admitted(ownerOf(e.pod))
	}
	r.Explained = a.explanations.put(r, e.told.basis, e.preferences.ignored)
	if outcome == Reject && e.told.blamed != "" {
		r.Explained = strings.TrimSuffix(e.told.blamed+"; "+r.Explained, "; ")
	}
	if outcome != Wait {
		r.Tried, e.told.tried, e.told.basis = e.told.tried, nil, nil
	}
	a.cfg.Report(r)
}

func (a *admitter) expired(e *entry, now time.Time) bool {
	return now.Sub(e.tries.since) >= a.cfg.Wait
}
