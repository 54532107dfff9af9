package admission

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/mailbox"
)

// Queue decides on pods. Its methods do not block; Run does the work.
type Queue struct {
	inbox    *mailbox.Box[message]
	admitter admitter // Run owns it
}

// message asks for a step with an event, or has look see the line, which must not change it.
type message struct {
	event line.Event
	look  func(*line.Line)
}

// New returns a queue that knows no pods yet.
func New(cfg Config) *Queue {
	if cfg.Preempt == nil {
		cfg.Preempt = func(report.Preemption) {}
	}
	if cfg.Claims == nil {
		cfg.Claims = noClaims{}
	}
	if cfg.Unadvised == nil {
		cfg.Unadvised = func(*v1.Pod, allocation.AskKey, error) {}
	}
	return &Queue{inbox: mailbox.New[message](), admitter: newAdmitter(cfg)}
}

// Submit asks for a decision. adopt says that the pod's sandbox is alive in the runtime.
// Submitting a pod that was decided already changes nothing but the spec remembered. A pod that
// terminates is not submitted before it is Released.
func (q *Queue) Submit(pod *v1.Pod, adopt bool) {
	q.inbox.Put(message{event: line.Submitted{Pod: pod, Adopt: adopt}})
}

// Resize asks for the resources of a pod that was admitted with others. What it asked for before counts no
// more.
func (q *Queue) Resize(pod *v1.Pod) { q.inbox.Put(message{event: line.Asked{Pod: pod}}) }

// Leaving says that the pod has begun to terminate: pods may wait for what it holds. ended: it has
// come to its end by itself. To the kubelet what such a pod holds is free, so that pods wait for it
// that do not wait otherwise.
func (q *Queue) Leaving(uid types.UID, ended bool) {
	q.inbox.Put(message{event: line.Left{UID: uid, Ended: ended}})
}

// Release gives back what the pod holds and forgets it. For a pod that still waits it withdraws
// the request. A uid that only the store knows is dropped there. Once nothing of the pod is
// recorded any more Released is reported, also of a uid that nothing is known of.
func (q *Queue) Release(uid types.UID) { q.inbox.Put(message{event: line.Gone{UID: uid}}) }

// Poke says that something changed that pods may be waiting for, such as the inventory.
func (q *Queue) Poke() { q.inbox.Put(message{event: line.Poked{}}) }

// Snapshot returns the inputs of a decision on a pod submitted now. It waits for Run, which does not
// wait for it.
func (q *Queue) Snapshot(ctx context.Context) (decide.Snapshot, error) {
	s, _, err := q.Standing(ctx, nil)
	return s, err
}

// Standing is Snapshot, and returns by the UIDs of asked which of them run here by their names, for resizes.
func (q *Queue) Standing(ctx context.Context, asked []*v1.Pod) (
	s decide.Snapshot, standing map[types.UID]decide.Standing, err error) {
	type reply struct {
		snapshot decide.Snapshot
		standing map[types.UID]decide.Standing
	}
	replies := make(chan reply, 1)
	q.inbox.Put(message{look: func(l *line.Line) {
		r := reply{l.Snapshot(l.View, l.Ledger), map[types.UID]decide.Standing{}}
		for _, pod := range asked {
			if st, runs := l.Standing(pod); runs {
				r.standing[pod.UID] = st
			}
		}
		replies <- r
	}})
	select {
	case r := <-replies:
		return r.snapshot, r.standing, nil
	case <-ctx.Done():
		return s, nil, fmt.Errorf("wait for admission: %w", ctx.Err())
	}
}

// Explained explains the last decision on a pod. Of several pods of that name, where one replaces
// another, the last one decided on counts. For a pod that waits, Free says what is free now.
func (q *Queue) Explained(ctx context.Context, namespace, name string) (explain.Record, bool) {
	r, ok := q.admitter.reporter.Explained(namespace, name)
	if !ok || r.Outcome != string(decide.Wait) {
		return r, ok
	}
	s, err := q.Snapshot(ctx)
	if err != nil {
		return r, ok // the agent ends
	}
	var resources []string
	for _, was := range r.Free {
		resources = append(resources, was.Resource)
	}
	r.Free = explain.Free(s.Beside(types.UID(r.Subject.UID), resources), resources)
	return r, ok
}

// Run decides until ctx ends; then it waits for the goroutines that it started.
func (q *Queue) Run(ctx context.Context) error {
	a := &q.admitter
	defer a.calls.wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.inbox.Wake():
		case <-a.calls.done.Wake():
		case <-timer.C:
		}
		q.round(ctx)
		timer.Reset(a.untilNext())
	}
}

// round does all that was asked for since the last one.
func (q *Queue) round(ctx context.Context) {
	a := &q.admitter
	events, looks := sorted(q.inbox.Take())
	a.round(ctx, events)
	for _, look := range looks { // after the pods that were submitted before
		look(a.line)
	}
}

// sorted returns the events, those of pods to adopt first, so that new ones see what those hold.
func sorted(messages []message) (events []line.Event, looks []func(*line.Line)) {
	var adopted []line.Event
	for _, m := range messages {
		switch in, ok := m.event.(line.Submitted); {
		case m.look != nil:
			looks = append(looks, m.look)
		case ok && in.Adopt:
			adopted = append(adopted, in)
		default:
			events = append(events, m.event)
		}
	}
	return append(adopted, events...), looks
}
