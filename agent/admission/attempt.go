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

// attempt decides on one pod with what is known now, and does what follows.
func (q *Queue) attempt(ctx context.Context, e *entry, t *turn) {
	d := q.decide(e, q.pods.ledger, t)
	if d.kind == planned && d.Outcome != Admit {
		if q.reread(ctx, e, d.Case.Err) {
			return
		}
		q.reconsider(e, &d, t)
	}
	if log := klog.FromContext(ctx).V(4); log.Enabled() {
		for _, m := range d.Case.Explain().Merges {
			log.Info("Merged topology hints", "pod", klog.KObj(e.pod),
				"container", m.Container, "offers", m.Offers, "merged", m.Merged,
				"admit", m.Admitted)
		}
	}
	switch d.Outcome {
	case Admit:
		q.admit(ctx, e, d)
	case Wait:
		q.wait(e, d)
	default:
		q.reject(e, d.rejection)
	}
}

// decide is the decision on an entry beside what the ledger has.
func (q *Queue) decide(e *entry, ledger allocation.Ledger, t *turn) Decision {
	s := q.cfg.snapshot(q.view, ledger)
	s.ahead, s.patient = t.ahead, !q.expired(e, t.now)
	r := q.request(e)
	began := time.Now()
	d := decide(&s, &r)
	e.told.decided(d, basisOf(s, r, d), time.Since(began))
	return d
}

func (q *Queue) request(e *entry) request {
	r := request{
		pod: e.pod, in: e.pod.UID, own: q.pods.own(e), runs: e.runs,
		advice: e.preferences.advice, silent: e.preferences.silent,
	}
	if e.claims() {
		r.claimed, r.claim = true, e.has.pod
	}
	return r
}

// admit lets the pod have its plan, as far as it is one: advice may be wanted first, answers of
// plugins and the durable commit are.
func (q *Queue) admit(ctx context.Context, e *entry, d Decision) {
	plan := d.Case.Plan
	switch {
	case d.kind == adopted || d.kind == unplanned:
		q.adopt(e, d)
	case plan.Ask != nil:
		// What the pod would get without advice is its own meanwhile, so that the pods behind
		// it do not get ahead. The advice may lead to other devices in the end.
		has := e.has
		if len(plan.Pod.Containers) > 0 {
			has = reservation{tentative, plan.Pod}
		}
		q.pods.give(e, asking, has)
		q.start(ctx, e, func(ctx context.Context) completion {
			return q.calls.ask(ctx, e.pod, *plan.Ask)
		})
	case plan.Pod.IsEmpty():
		q.pods.give(e, admitted, reservation{})
		q.say(e, Admit, "", "")
	default:
		reserved := plan.Pod
		reserved.BootID = q.cfg.BootID
		q.pods.give(e, allocating, reservation{pod: reserved})
		q.start(ctx, e, func(ctx context.Context) completion {
			return q.calls.assign(ctx, reserved)
		})
	}
}

// adopt admits a pod that runs with what is recorded of it.
func (q *Queue) adopt(e *entry, d Decision) {
	q.pods.drop(e, admitted)
	q.pods.move(e, admitted, reservation{pod: d.Held})
	e.told.tried = nil
	q.say(e, Admit, d.Reason, d.Message)
}

// start has a goroutine work for the pod. The first time it may take what it takes, trying again
// ends at the pod's deadline.
func (q *Queue) start(ctx context.Context, e *entry, f func(context.Context) completion) {
	e.due = time.Now().Add(slowAnswer)
	var deadline time.Time
	if e.tries.retries > 0 {
		deadline = e.since.Add(q.cfg.Wait)
	}
	q.calls.start(ctx, e, deadline, f)
}

// wait has the pod wait with a claim, or without anything for a handler.
func (q *Queue) wait(e *entry, d Decision) {
	if d.kind == checked {
		q.pods.drop(e, deferred)
		e.tries.refusal = d.rejection
		q.say(e, Wait, d.Reason, d.Message)
		return
	}
	// The message has numbers; that these go up and down is no news.
	same := e.claims() && e.told.last.Reason == d.Reason && d.Reason != ReasonWaitPlugin
	to := waiting
	if d.kind == soon {
		to, same = brief, true
	}
	q.pods.give(e, to, reservation{claim, d.claim})
	e.preferences = preferences{}
	if !same {
		q.say(e, Wait, d.Reason, q.naming(d))
	}
}

func (q *Queue) reject(e *entry, r *allocation.Rejection) {
	q.pods.drop(e, rejected)
	if e.told.tried != nil {
		e.told.tried.Err = r
	}
	q.say(e, Reject, r.Reason, r.Message)
}

// completed continues with an entry whose goroutine is back.
func (q *Queue) completed(e *entry, c completion) {
	switch e.state {
	case asking:
		e.preferences = e.preferences.answered(c.asked, c.advice, c.err)
		q.pods.move(e, queued, e.has)
	case rereading:
		q.pods.move(e, queued, e.has)
	case finishing:
		if !c.assigned {
			q.pods.drop(e, withdrawn)
			return
		}
		q.pods.move(e, terminating, reservation{pod: c.reserved})
		q.say(e, Admit, "", "")
	case allocating:
		if c.err != nil {
			q.failed(e, c)
			return
		}
		q.pods.move(e, admitted, reservation{pod: c.reserved})
		q.say(e, Admit, "", "")
		e.preferences = preferences{}
	default:
		panic(fmt.Sprintf("admission: an answer in state %d", e.state))
	}
}

// failed decides what an error of a plugin or of the store means for the pod.
func (q *Queue) failed(e *entry, c completion) {
	now := time.Now()
	refusal := unexpected(c.err)
	switch {
	case e.runs:
		q.pods.drop(e, queued)
		s, r := q.cfg.snapshot(q.view, q.pods.ledger), q.request(e)
		q.adopt(e, s.adopt(Decision{Pod: e.pod}, &r, c.err, adopted))
		return
	case !errors.Is(c.err, errCommit) && !mayPass(c.err), q.expired(e, now):
		q.reject(e, refusal)
		return
	case !q.sound(c.reserved): // the machine changed meanwhile
		q.pods.give(e, queued, reservation{kind: claim})
		return
	}
	// The reservation is kept, with the answers that did come.
	q.pods.move(e, retrying, reservation{pod: c.reserved})
	e.tries.refusal = refusal
	e.due = c.began.Add(min(time.Second<<min(e.tries.retries, 4), 10*time.Second))
	if e.due.Before(now) {
		e.due = now // the call took so long that the next one is the way to wait
	}
	e.tries.retries++
	reason, message := ReasonWaitPlugin, c.err.Error()
	if errors.Is(c.err, errCommit) {
		reason = ReasonWaitStore
	}
	var call *callError
	if errors.As(c.err, &call) {
		message = fmt.Sprintf("the device plugin of %s failed: %v", call.resource, call.error)
	}
	q.say(e, Wait, reason, message)
}

// saySlow tells of a plugin that takes its time; that it is called again was told. Where pods do
// not wait there is nothing to tell: like the kubelet's, such a pod is pending until Allocate
// returns.
func (q *Queue) saySlow(e *entry) {
	if q.cfg.Wait <= 0 || e.tries.retries > 0 || e.runs || e.state.goes() {
		return
	}
	if resources := e.unanswered(); len(resources) > 0 {
		q.say(e, Wait, ReasonWaitPlugin,
			"no answer yet from the device plugin of "+strings.Join(resources, ", "))
	}
}

// say reports an outcome once.
func (q *Queue) say(e *entry, outcome Outcome, reason, message string) {
	last := e.told.last
	if outcome == last.Outcome && reason == last.Reason && message == last.Message {
		return
	}
	r := Result{Pod: e.pod, Outcome: outcome, Reason: reason, Message: message}
	r.Reworded = outcome == last.Outcome && reason == last.Reason
	e.told.last = r
	r.Explained = q.explanations.put(r, e.told.basis, e.preferences.ignored)
	if outcome != Wait {
		r.Tried, e.told.tried, e.told.basis = e.told.tried, nil, nil
	}
	q.cfg.Report(r)
}
