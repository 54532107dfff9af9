package agent

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
)

// The periods of the syncLoop.
const (
	syncPeriod         = time.Second
	housekeepingPeriod = 2 * time.Second
)

// probeResult is what a prober found out about a container.
type probeResult struct {
	pod       types.UID
	container string
}

// loop is the syncLoop: one goroutine that hands on what happens, to admission, to the workers, to
// the housekeeper. It decides nothing that takes time and waits for nothing but the next event.
type loop struct {
	updates   <-chan source.Update
	observed  <-chan types.UID
	decisions *mailbox.Box[admission.Result]
	ended     *mailbox.Box[ending]
	devices   <-chan struct{}
	health    chan<- struct{}    // of deviceHealth
	probes    <-chan probeResult // nothing sends yet: there is no prober

	pods     *pods
	last     func(types.UID) (cri.Pod, bool) // the runtime's view of a pod
	queue    *admission.Queue
	workers  *podworker.Workers
	chores   *chores
	rejected func(admission.Result)
	event    func(pod *v1.Pod, eventType, reason, message string)
	// entered is when the loop last came round, in nanoseconds; read by the health check.
	entered atomic.Int64
}

// ending is what a worker says at the end of a pod: gone when the runtime has nothing of it any
// more, else it ended by itself and its records stay.
type ending struct {
	uid  types.UID
	gone bool
}

func (l *loop) run(ctx context.Context) error {
	tick := time.NewTicker(syncPeriod)
	defer tick.Stop()
	housekeeping := time.NewTicker(housekeepingPeriod)
	defer housekeeping.Stop()
	for {
		l.entered.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return nil
		case u := <-l.updates:
			l.update(ctx, u)
		case uid := <-l.observed:
			l.workers.Wake(uid)
		case <-l.decisions.Wake():
			for _, r := range l.decisions.Take() {
				l.decided(ctx, r)
			}
		case <-l.ended.Wake():
			for _, e := range l.ended.Take() {
				l.end(e)
			}
		case <-l.devices:
			l.queue.Poke()
			l.chores.export()
			signal(l.health)
		case r := <-l.probes:
			l.workers.Wake(r.pod)
		case <-tick.C: // the round itself is what the health check looks for
		case <-housekeeping.C:
			l.chores.housekeep()
		}
	}
}

// update takes a change of what is desired.
func (l *loop) update(ctx context.Context, u source.Update) {
	for _, pod := range l.inOrder(u.Pods) {
		klog.FromContext(ctx).V(2).Info("Pod "+string(u.Op), "pod", klog.KObj(pod),
			"podUID", pod.UID, "source", u.Source)
		switch u.Op {
		case source.ADD, source.UPDATE:
			l.desire(pod)
		case source.DELETE, source.REMOVE:
			l.undesire(pod)
		case source.RECONCILE:
			l.workers.Wake(pod.UID)
		}
	}
	l.pods.see(u.Source)
}

// inOrder is the order in which pods that come together are decided on: those that run already,
// whose place is taken, then the older ones first.
func (l *loop) inOrder(pods []*v1.Pod) []*v1.Pod {
	running := sets.New[types.UID]()
	for _, pod := range pods {
		if observed, _ := l.last(pod.UID); observed.Running() {
			running.Insert(pod.UID)
		}
	}
	rank := func(pod *v1.Pod) int {
		if running.Has(pod.UID) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})
}

func (l *loop) desire(pod *v1.Pod) {
	if pod.DeletionTimestamp != nil {
		l.undesire(pod)
		return
	}
	before, known := l.pods.desire(pod)
	observed, _ := l.last(pod.UID)
	switch {
	case before.stopping: // it is submitted when nothing of it is left
	case known && before.outcome == admission.Admit:
		l.workers.Update(podworker.Desired{Pod: pod})
	case status.Ended(status.Phase(pod, observed, nil)):
		// It ended under an earlier run of the agent and shall not run again.
		l.pods.decide(admission.Result{Pod: pod, Outcome: admission.Admit})
		l.workers.Update(podworker.Desired{Pod: pod})
	default:
		l.queue.Submit(pod, observed.Running())
	}
}

func (l *loop) undesire(pod *v1.Pod) {
	rec, known := l.pods.get(pod.UID)
	if !known {
		return
	}
	// A pod that ran under an earlier run of the agent may not have been decided on yet. What it
	// holds is in use until it has stopped.
	_, recorded := l.last(pod.UID)
	l.pods.undesire(pod.UID)
	if rec.outcome != admission.Admit && !rec.stopping && !recorded {
		l.queue.Release(pod.UID)
		l.pods.forget(pod.UID)
		return
	}
	l.queue.Leaving(pod.UID)
	l.workers.Update(podworker.Desired{
		Pod: pod, Stop: &podworker.Stop{Grace: podworker.Grace(pod), Remove: true},
	})
}

// decided takes admission's word on a pod.
func (l *loop) decided(ctx context.Context, r admission.Result) {
	if !l.pods.decide(r) {
		return // withdrawn meanwhile; the queue was told
	}
	log := klog.FromContext(ctx)
	switch r.Outcome {
	case admission.Admit:
		if r.Reason != "" {
			log.Info("Pod admitted with less than it requests", "pod", klog.KObj(r.Pod),
				"reason", r.Reason, "message", r.Message)
			l.event(r.Pod, v1.EventTypeWarning, r.Reason, r.Message)
		}
		l.workers.Update(podworker.Desired{Pod: r.Pod})
		signal(l.health)
	case admission.Wait:
		log.Info("Pod waits", said(r)...)
		if !r.Reworded {
			l.event(r.Pod, v1.EventTypeNormal, r.Reason, explain.Event(r.Message, r.Explained))
		}
	case admission.Reject:
		log.Info("Pod rejected", said(r)...)
		l.event(r.Pod, v1.EventTypeWarning, r.Reason, explain.Event(r.Message, r.Explained))
		l.rejected(r)
	}
}

// said is what the log says of a pod that does not start.
func said(r admission.Result) []any {
	values := []any{"pod", klog.KObj(r.Pod), "reason", r.Reason, "message", r.Message}
	if r.Explained != "" {
		values = append(values, "explanation", r.Explained)
	}
	return values
}

// end gives back what a pod held once nothing of it runs.
func (l *loop) end(e ending) {
	l.queue.Release(e.uid)
	if !e.gone {
		return
	}
	if again := l.pods.forget(e.uid); again != nil {
		l.queue.Submit(again, false)
	}
}
