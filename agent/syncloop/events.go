package syncloop

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// update takes a change of what sources desire.
func (l *Loop) update(ctx context.Context, u source.Update) {
	for _, p := range l.inOrder(u.Pods) {
		klog.FromContext(ctx).V(2).Info("Pod "+string(u.Op), "pod", klog.KObj(p),
			"podUID", p.UID, "source", u.Source)
		l.removeNamesake(ctx, p, u.Op)
		e := pod.Event{Pod: p, Runtime: l.runtimeOf(p)}
		switch u.Op {
		case source.ADD, source.UPDATE:
			e.Kind = pod.Desired
		case source.DELETE:
			e.Kind = pod.Deleted
		case source.RETRY:
			e.Kind = pod.Retried
		case source.REMOVE:
			e.Kind, e.Pod = pod.Removed, removed(p, u.Source)
		case source.RECONCILE:
			if !l.reconciled(p) {
				continue
			}
			e.Kind = pod.Desired
		default:
			panic(fmt.Sprintf("syncloop: operation %q of source %s", u.Op, u.Source))
		}
		l.feed(p.UID, e)
	}
	l.seen[u.Source] = true
}

// removed is a pod that its source has no more. One that the API server has no more, and that was
// not ended here before, was deleted by force: nobody waits for its grace period.
func removed(p *v1.Pod, from string) *v1.Pod {
	if from != source.APISource {
		return p
	}
	forced := *p
	forced.DeletionGracePeriodSeconds = ptr.To[int64](0)
	return &forced
}

// reconciled takes what others wrote into a pod's status, and reports whether they wrote its end.
func (l *Loop) reconciled(p *v1.Pod) (ended bool) {
	switch l.cfg.Statuses.Reconcile(p) {
	case podstatus.Ended:
		return true
	case podstatus.Gates:
		l.cfg.Workers.Wake(p.UID)
	}
	return false
}

// removeNamesake begins to remove what the runtime has of another pod of that UID: an earlier run
// of the agent knew it by another name.
func (l *Loop) removeNamesake(ctx context.Context, p *v1.Pod, op source.Op) {
	observed, recorded := l.cfg.Runtime(p.UID)
	_, known := l.records[p.UID]
	if known || !recorded || op == source.REMOVE || op == source.RECONCILE ||
		pod.Same(observed.Reference(), p) {
		return
	}
	klog.FromContext(ctx).Info("Removing a pod whose UID another pod has now", "pod",
		klog.KRef(observed.Namespace, observed.Name), "podUID", p.UID, "newPod", klog.KObj(p))
	l.feed(p.UID, pod.Event{Kind: pod.Orphaned, Pod: observed.Reference()})
}

// inOrder is the order in which pods that come together are decided on: those that run already,
// whose place is taken, then the older ones first.
func (l *Loop) inOrder(pods []*v1.Pod) []*v1.Pod {
	rank := map[types.UID]int{} // below zero: it runs
	for _, p := range pods {
		if l.observed(p.UID).Running {
			rank[p.UID] = -1
		}
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(rank[a.UID]-rank[b.UID], a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			podspec.Compare(a, b))
	})
}

// observed is what the runtime has of a pod, of which the spec is not asked.
func (l *Loop) observed(uid types.UID) pod.Runtime {
	observed, recorded := l.cfg.Runtime(uid)
	return pod.Runtime{Recorded: recorded, Running: observed.Running()}
}

// runtimeOf is what the runtime has of a pod, and whether that is an end by its spec.
func (l *Loop) runtimeOf(p *v1.Pod) pod.Runtime {
	observed, recorded := l.cfg.Runtime(p.UID)
	return pod.Runtime{
		Recorded: recorded, Running: observed.Running(), Admitted: l.admitted(observed),
		Ended: status.Ended(p.Status.Phase) ||
			status.Ended(status.Phase(p, status.Facts{Observed: observed})),
	}
}

// admitted are the resources that an earlier run of the agent admitted a pod with.
func (l *Loop) admitted(observed cri.Pod) *podspec.Resources {
	switch l.records[observed.UID].State {
	case pod.None, pod.Deciding, pod.Rejected:
		return l.cfg.Admitted(observed)
	default: // its record knows
		return nil
	}
}

// decided takes admission's word on a pod.
func (l *Loop) decided(ctx context.Context, r admission.Result) {
	log := klog.FromContext(ctx)
	e := pod.Event{Why: pod.Why{Reason: r.Reason, Message: r.Message, Explained: r.Explained}}
	switch r.Outcome {
	case decide.Admit:
		e.Kind, e.Why.Explained, e.Pod = pod.Admitted, "", r.Pod
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
	case decide.Released:
		e.Kind = pod.Released
	default:
		panic(fmt.Sprintf("syncloop: outcome %q", r.Outcome))
	}
	l.feed(r.Pod.UID, e)
}

// logged is what the log says of a pod that does not start.
func logged(r admission.Result) []any {
	values := []any{"pod", klog.KObj(r.Pod), "reason", r.Reason, "message", r.Message}
	if r.Explained != "" {
		values = append(values, "explanation", r.Explained)
	}
	return values
}

// event takes what a part of the agent says of a pod.
func (l *Loop) event(ctx context.Context, e Event) {
	if e.Kind == pod.Orphaned {
		_, known := l.records[e.UID]
		if known || !l.hearing() {
			return
		}
		klog.FromContext(ctx).Info("Removing a pod that nobody desires", "pod", klog.KObj(e.Pod),
			"podUID", e.UID)
	}
	l.feed(e.UID, e.Event)
}
