package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// admitter tells pods' records of events and carries out what their steps want done. Run's goroutine
// owns it.
type admitter struct {
	cfg      Config
	pods     *line.Pods
	view     decide.View
	calls    calls
	reporter *report.Reporter
	repeats  record.Repeats
	slow     sets.Set[string] // resources whose plugins take long to say what they prefer
	// changes collects what happens until the pods that wait are looked at again.
	changes changes
}

// Tell tells the pod's record of an event.
func (a *admitter) Tell(ctx context.Context, e *line.Entry, ev record.Event) {
	_, recorded := a.pods.Stored.Pods[e.Pod.UID]
	now := time.Now()
	next, effects := e.Step(ev, record.Conditions{
		Now: now, Wait: a.cfg.Wait, BootID: a.cfg.BootID, View: a.view, Recorded: recorded,
		Rereads: a.cfg.Reread != nil, Held: a.repeats.Until(record.OwnerOf(e.Pod), now), Slow: a.slow,
	})
	a.pods.Set(e, next)
	for _, f := range effects {
		a.do(ctx, e, f)
	}
}

// Explain takes note of what explains a decision on the pod; final: the decision counts.
func (a *admitter) Explain(e *line.Entry, v line.Verdict, final bool) {
	a.reporter.Explain(e, v, final)
}

// Snapshot returns what a decision beside this ledger depends on.
func (a *admitter) Snapshot(l allocation.Ledger) decide.Snapshot { return a.cfg.snapshot(a.view, l) }

// Lack returns what a pod lacks whose objects are followed.
func (a *admitter) Lack(pod *v1.Pod) decide.Lack { return a.cfg.Needs.Lack(pod) }

// do carries out an effect of the pod's last step.
func (a *admitter) do(ctx context.Context, e *line.Entry, f record.Effect) {
	switch f := f.(type) {
	case record.Ask:
		pod := e.Pod
		a.start(ctx, e, func(ctx context.Context) record.Event { return a.calls.ask(ctx, pod, f.Ask) })
	case record.Inquire:
		pod := e.Pod
		a.start(ctx, e, func(ctx context.Context) record.Event { return a.calls.needed(ctx, pod, f.Until) })
	case record.Reread:
		a.start(ctx, e, func(ctx context.Context) record.Event { return a.calls.reread(ctx, f.What) })
	case record.Assign:
		pod := e.Pod
		a.start(ctx, e, func(ctx context.Context) record.Event { return a.calls.assign(ctx, pod, f.Pod) })
	case record.DropRecord:
		stored := a.pods.Stored.Pods[e.Pod.UID]
		a.calls.start(ctx, e.Pod.UID, time.Time{}, func(ctx context.Context) record.Event {
			return a.calls.drop(ctx, stored)
		})
	case record.Cancel:
		a.calls.cancel(e.Pod.UID)
	case record.Forgo:
		a.cfg.Needs.End(e.Pod.UID)
	case record.Say:
		if a.reporter.Say(e, f) && f.Outcome == decide.Admit {
			a.repeats.Admitted(record.OwnerOf(e.Pod))
		}
	case record.SayWait:
		a.reporter.Say(e, record.Say{Outcome: decide.Wait, Reason: f.Reason,
			Message: report.Naming(a.pods, f.Decision)})
	case record.SayReject:
		a.cfg.Claims.Release(e.Pod.UID)
		a.repeats.Rejected(record.OwnerOf(e.Pod), time.Now())
		a.reporter.Reject(e, f.Rejection)
	case record.Forget:
		a.cfg.Claims.Release(e.Pod.UID)
		a.pods.Remove(e)
		a.reporter.Forget(e.Pod)
	case record.Adopt:
		s, r := a.Snapshot(a.pods.Ledger), a.pods.Request(e)
		a.Tell(ctx, e, record.Decided{Decision: s.Adopt(&r, f.Err)})
	case record.Preempt:
		a.preempt(ctx, f.Decision)
	case record.Free:
		a.changes.freed = true
	case record.Silence:
		a.silence(e, f)
	default:
		panic(fmt.Sprintf("admission: effect %T", f))
	}
}

// start runs a call for the pod. The first one takes what it takes, later ones end at the pod's
// deadline.
func (a *admitter) start(ctx context.Context, e *line.Entry, f func(context.Context) record.Event) {
	var deadline time.Time
	if e.Tries.Retries > 0 && a.cfg.Wait > 0 {
		deadline = e.Tries.Since.Add(a.cfg.Wait)
	}
	a.calls.start(ctx, e.Pod.UID, deadline, f)
}

// submitted takes in a pod that is new or requests something else.
func (a *admitter) submitted(ctx context.Context, pod *v1.Pod, adopt bool) {
	e := a.pods.Find(pod.UID)
	if claim.Any(pod) && (e == nil || !e.State.Goes()) {
		a.cfg.Claims.Begin(pod)
	}
	switch {
	case e == nil:
		held, stored := a.pods.Stored.Pods[pod.UID]
		a.changes.stays = a.changes.stays || stored
		r := record.Record{
			Demand: a.cfg.demandOf(pod), Tries: record.Tries{Since: time.Now()},
			Runs: adopt && !a.pods.IsVoid(held),
		}
		a.inquire(&r, stored)
		a.pods.Add(r)
	case e.State.Goes():
		klog.FromContext(ctx).Info("Ignored a pod that was submitted while it is being released",
			"pod", klog.KObj(pod), "podUID", pod.UID)
	default:
		a.Tell(ctx, e, record.Resubmitted{Demand: a.cfg.demandOf(pod), Planned: a.cfg.demandOf(e.Planned(pod))})
	}
}

// released gives back what a pod has, also one that only the store knows.
func (a *admitter) released(ctx context.Context, uid types.UID) {
	e := a.pods.Find(uid)
	if e == nil {
		held, stored := a.pods.Stored.Pods[uid]
		if !stored {
			held.UID = uid
			a.reporter.Forget(held.Reference())
			return
		}
		e = a.pods.Add(record.Record{
			Demand: a.cfg.demandOf(held.Reference()), Tries: record.Tries{Since: time.Now()},
			State: record.Terminating, Has: record.Reservation{Pod: held},
		})
	}
	a.Tell(ctx, e, record.Gone{})
}

// follow takes over what was recorded since.
func (a *admitter) follow() {
	if a.pods.Follow(a.cfg.Store.State()) {
		a.changes.freed = true
	}
}

// finish takes what goroutines brought back.
func (a *admitter) finish(ctx context.Context) {
	back := a.calls.done.Take()
	a.follow() // what was committed is in it
	for _, b := range back {
		a.answered(ctx, b)
	}
}

// sweep moves every pod on as far as it goes now, in the order of arrival. Another pod may wait for what
// that gives back, so sweep goes on until nothing changes any more.
func (a *admitter) sweep(ctx context.Context) {
	now := time.Now()
	a.follow()
	a.changes.look(&a.view, a.cfg.view())
	for _, e := range slices.Clone(a.pods.Order) {
		if due := e.Tries.Due; !due.IsZero() && !now.Before(due) {
			reason, words := a.reporter.Words(e, a.pods)
			a.Tell(ctx, e, record.Late{Reason: reason, Words: words})
		}
	}
	for first := true; a.requeue(ctx, now) || first; first = false {
		line.NewPass(a, line.Surroundings{Now: now, Wait: a.cfg.Wait, View: a.view}, a.pods).Run(ctx)
	}
}

// untilNext returns the time to the next deadline or retry.
func (a *admitter) untilNext() time.Duration {
	next := time.Hour
	for _, e := range a.pods.Order {
		switch {
		case e.IsEndless():
		case e.State == record.Waiting, e.State == record.Retrying, e.State == record.Deferred:
			next = min(next, time.Until(e.Tries.Since.Add(a.cfg.Wait)))
		}
		if !e.Tries.Due.IsZero() {
			next = min(next, time.Until(e.Tries.Due))
		}
	}
	return max(next, 0)
}

// answered tells the pod's record what a goroutine brought back. Once the agent stops only releases
// go on.
func (a *admitter) answered(ctx context.Context, back answer) {
	e := a.pods.Find(back.pod)
	if !a.calls.take(back) || e == nil || !e.State.UnderWay() {
		return // late
	}
	if e.State != record.Canceling && e.State != record.Releasing && ctx.Err() != nil {
		return
	}
	if d, ok := back.event.(record.Dropped); ok && d.Err != nil && ctx.Err() == nil &&
		!errors.Is(d.Err, store.ErrStopped) {
		klog.FromContext(ctx).Info("Releasing resources is retried",
			"pod", klog.KObj(e.Pod), "err", d.Err)
	}
	if said, ok := back.event.(record.Advised); ok {
		a.slow.Delete(said.Key.Resource)
		if time.Since(e.Question.Asked) >= record.Patience {
			a.slow.Insert(said.Key.Resource)
		}
	}
	a.Tell(ctx, e, back.event)
}

// preempt ends the victims of a decision. They count as terminating from now on, so that none is
// chosen twice.
func (a *admitter) preempt(ctx context.Context, d decide.Decision) {
	for _, uid := range d.Victims {
		if victim := a.pods.Find(uid); victim != nil {
			a.Tell(ctx, victim, record.Left{})
			a.cfg.Preempt(report.Preemption{Victim: victim.Pod, Critical: d.Pod, Resource: d.Rejection.Short})
		}
	}
}

// silence keeps the pods in line from waiting for a plugin that did not answer about a pod in time.
func (a *admitter) silence(about *line.Entry, f record.Silence) {
	for _, o := range a.pods.Order {
		resource := f.Key.Resource
		if o.State != record.Behind || o.Least[resource] == 0 || o.Preferences.Silent.Has(resource) {
			continue
		}
		key := allocation.AskKey{
			Container: o.FirstWith(resource), Resource: resource,
		}
		err := fmt.Errorf("asked about %s it said: %w", klog.KObj(about.Pod), f.Err)
		a.pods.Set(o, o.Unadvised(key, err))
		a.cfg.Unadvised(o.Pod, key, err)
	}
}
