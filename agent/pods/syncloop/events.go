package syncloop

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/topology/podspec"
)

// update feeds what a source reports of pods.
func (l *Loop) update(ctx context.Context, u source.Update) {
	runs := func(uid types.UID) bool { return l.observed(uid).Running }
	for _, p := range pod.InOrder(u.Pods, runs) {
		klog.FromContext(ctx).V(2).Info("Pod "+string(u.Op), "pod", klog.KObj(p),
			"podUID", p.UID, "source", u.Source)
		e := pod.Event{Pod: p, FromAPI: u.Source == podspec.APISource, Runtime: l.runtimeOf(p)}
		switch u.Op {
		case source.ADD, source.UPDATE:
			e.Kind = pod.Desired
			if why, grace, is := l.cfg.PendingKill(p); is {
				e.Why, e.Grace = why, grace
			}
		case source.DELETE:
			e.Kind = pod.Deleted
		case source.RETRY:
			e.Kind = pod.Retried
		case source.REMOVE:
			e.Kind = pod.Removed
		case source.RECONCILE:
			e.Kind, e.News = pod.Reconciled, l.cfg.Statuses.Reconcile(p)
		default:
			panic(fmt.Sprintf("syncloop: operation %q of source %s", u.Op, u.Source))
		}
		l.feed(ctx, p.UID, e)
	}
	l.seen[u.Source] = true
}

// observed returns what the runtime has of a pod, regardless of the spec.
func (l *Loop) observed(uid types.UID) pod.Runtime {
	observed, recorded := l.cfg.Runtime(uid)
	r := pod.Runtime{Recorded: recorded, Running: observed.Running()}
	if recorded {
		r.Pod = observed.Reference()
	}
	return r
}

// runtimeOf returns what the runtime has of a pod, and whether that means its end by the spec.
func (l *Loop) runtimeOf(p *v1.Pod) pod.Runtime {
	observed, _ := l.cfg.Runtime(p.UID)
	r := l.observed(p.UID)
	r.Allocated = l.cfg.Allocated(p.UID, observed)
	r.Ended = podspec.Ended(p.Status.Phase) ||
		podspec.Ended(status.Phase(p, status.Facts{Observed: observed}))
	return r
}

// decided feeds an outcome of admission.
func (l *Loop) decided(ctx context.Context, r report.Result) {
	log := klog.FromContext(ctx)
	e := pod.Event{Pod: r.Pod,
		Why: pod.Why{Reason: r.Reason, Message: r.Message, Explained: r.Explained}}
	switch r.Outcome {
	case decide.Admit:
		e.Kind, e.Why.Explained = pod.Admitted, ""
		if r.Reason != "" {
			log.Info("Pod admitted with less than it requests", "pod", klog.KObj(r.Pod),
				"reason", r.Reason, "message", r.Message)
		}
	case decide.Wait:
		e.Kind, e.Why.Silent = pod.Waits, r.Reworded
		log.Info("Pod waits", logged(r)...)
	case decide.Reject:
		e.Kind = pod.Refused
		log.Info("Pod rejected", logged(r)...)
	case decide.Resized:
		e.Kind, e.Trigger = pod.Resized, string(r.Trigger)
	case decide.NotResized:
		e.Kind, e.Why.Silent = pod.NotResized, r.Reworded
	case decide.Released:
		e.Kind = pod.Released
	default:
		panic(fmt.Sprintf("syncloop: outcome %q", r.Outcome))
	}
	l.feed(ctx, r.Pod.UID, e)
}

// logged returns what the log says of a pod that does not start.
func logged(r report.Result) []any {
	values := []any{"pod", klog.KObj(r.Pod), "reason", r.Reason, "message", r.Message}
	if r.Explained != "" {
		values = append(values, "explanation", r.Explained)
	}
	return values
}
