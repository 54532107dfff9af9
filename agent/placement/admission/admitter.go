package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation/store"
)

// admitter has the line take steps, and does what these want done. Run's goroutine owns it.
type admitter struct {
	cfg      Config
	line     *line.Line
	calls    calls
	reporter *report.Reporter
}

// newAdmitter returns an admitter that knows no pods yet.
func newAdmitter(cfg Config) admitter {
	facts := line.Facts{ClaimsOf: claimsOf(cfg.Claims)}
	if cfg.Needs != nil {
		facts.Lack = cfg.Needs.Lack
	}
	return admitter{
		cfg: cfg, line: line.New(cfg.settings(), facts),
		calls:    newCalls(cfg),
		reporter: report.New(cfg.Report, cfg.Plugins),
	}
}

// step has the line take a step, and does what it wants done.
func (a *admitter) step(ctx context.Context, e line.Event) {
	for _, f := range a.line.Step(e) {
		a.do(ctx, f)
	}
}

// do carries out an effect of the last step.
func (a *admitter) do(ctx context.Context, e line.Effect) {
	pod := e.Pod
	start := func(f func(context.Context) record.Event) { a.calls.start(ctx, pod.UID, e.Until, f) }
	switch f := e.Do.(type) {
	case record.Ask:
		start(func(ctx context.Context) record.Event { return a.calls.ask(ctx, pod, f.Ask) })
	case record.Inquire:
		start(func(ctx context.Context) record.Event { return a.calls.needed(ctx, pod, f.Until) })
	case record.Reread:
		start(func(ctx context.Context) record.Event { return a.calls.reread(ctx, f.What) })
	case record.Assign:
		start(func(ctx context.Context) record.Event { return a.calls.assign(ctx, pod, f.Pod) })
	case record.RecordResources:
		start(func(ctx context.Context) record.Event { return a.calls.resize(ctx, pod, f) })
	case record.DropRecord:
		stored := a.line.Stored.Pods[pod.UID]
		a.calls.start(ctx, pod.UID, time.Time{}, func(ctx context.Context) record.Event {
			return a.calls.drop(ctx, stored)
		})
	case record.Cancel:
		a.calls.cancel(pod.UID)
	case line.FollowClaims:
		a.cfg.Claims.Begin(pod)
	case line.FollowNeeds:
		a.cfg.Needs.Begin(pod)
	case record.Forgo:
		a.cfg.Needs.End(pod.UID)
	case line.Ignored:
		klog.FromContext(ctx).Info("Ignored a pod that was submitted while it is being released",
			"pod", klog.KObj(pod), "podUID", pod.UID)
	case line.Explain:
		a.reporter.Explain(pod, f)
	case record.Say:
		a.reporter.Say(pod, f)
	case record.SayResize:
		a.reporter.Resize(f)
	case record.SayReject:
		a.cfg.Claims.Release(pod.UID)
		a.reporter.Reject(pod, f.Rejection)
	case record.Forget:
		a.cfg.Claims.Release(pod.UID)
		a.reporter.Forget(pod)
	case line.Preempted:
		a.cfg.Preempt(report.Preemption{Victim: pod, Critical: f.Critical, Resource: f.Resource})
	case line.Unadvised:
		a.cfg.Unadvised(pod, f.Key, f.Err)
	default:
		panic(fmt.Sprintf("admission: effect %T", f))
	}
}

// round has the line take a step for all that was asked for and brought back. What is known of the node and
// the store is no older than that.
func (a *admitter) round(ctx context.Context, asked []line.Event) {
	back := a.calls.done.Take()
	a.step(ctx, line.Recorded{State: a.cfg.Store.State()})
	a.step(ctx, line.Seen{View: a.cfg.view()})
	for _, b := range back {
		if a.calls.take(b) {
			a.complain(ctx, b)
			a.step(ctx, line.Answered{UID: b.pod, Event: b.event, Stopping: ctx.Err() != nil})
		}
	}
	for _, e := range asked { // new pods see what has been given back
		a.step(ctx, e)
	}
	a.step(ctx, line.Tick{})
}

// complain logs that a release failed.
func (a *admitter) complain(ctx context.Context, b answer) {
	d, ok := b.event.(record.Dropped)
	e := a.line.Find(b.pod)
	if ok && e != nil && d.Err != nil && ctx.Err() == nil && !errors.Is(d.Err, store.ErrStopped) {
		klog.FromContext(ctx).Info("Releasing resources is retried", "pod", klog.KObj(e.Pod), "err", d.Err)
	}
}

// untilNext returns the time to the next deadline or retry.
func (a *admitter) untilNext() time.Duration {
	next, ok := a.line.Next()
	if !ok {
		return time.Hour
	}
	return max(time.Until(next), 0)
}
