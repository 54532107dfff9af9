package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/mailbox"
)

// Queue decides on pods. Its methods do not block; Run does the work.
type Queue struct {
	inbox *mailbox.Box[message]

	// Owned by Run.
	admitter admitter
	changes  changes
	looking  []chan<- Snapshot
}

type message struct {
	kind  messageKind
	pod   *v1.Pod
	uid   types.UID
	adopt bool
	ended bool            // of a pod that leaves
	reply chan<- Snapshot // of a look
}

type messageKind int

const (
	submitPod messageKind = iota
	leavePod
	releasePod
	poke
	look
)

// New returns a queue that knows no pods yet.
func New(cfg Config) *Queue {
	if cfg.Preempt == nil {
		cfg.Preempt = func(Preemption) {}
	}
	if cfg.Unadvised == nil {
		cfg.Unadvised = func(*v1.Pod, allocation.AskKey, error) {}
	}
	return &Queue{inbox: mailbox.New[message](), admitter: admitter{
		cfg: cfg, pods: newPods(cfg.BootID),
		calls: calls{cfg: cfg, done: mailbox.New[completion]()},
	}}
}

// Submit asks for a decision. adopt says that the pod's sandbox is alive in the runtime.
// Submitting a pod that was decided already changes nothing but the spec remembered. A pod that
// terminates is not submitted before it is Released.
func (q *Queue) Submit(pod *v1.Pod, adopt bool) {
	q.inbox.Put(message{kind: submitPod, pod: pod, uid: pod.UID, adopt: adopt})
}

// Leaving says that the pod has begun to terminate: pods may wait for what it holds. ended: it has
// come to its end by itself. To the kubelet what such a pod holds is free, so that pods wait for it
// that do not wait otherwise.
func (q *Queue) Leaving(uid types.UID, ended bool) {
	q.inbox.Put(message{kind: leavePod, uid: uid, ended: ended})
}

// Release gives back what the pod holds and forgets it. For a pod that still waits it withdraws
// the request. A uid that only the store knows is dropped there. Once nothing of the pod is
// recorded any more Released is reported, also of a uid that nothing is known of.
func (q *Queue) Release(uid types.UID) { q.inbox.Put(message{kind: releasePod, uid: uid}) }

// Poke says that something changed that pods may be waiting for, such as the inventory.
func (q *Queue) Poke() { q.inbox.Put(message{kind: poke}) }

// Snapshot is what a pod submitted now would be decided with. It waits for Run, which does not
// wait for it.
func (q *Queue) Snapshot(ctx context.Context) (Snapshot, error) {
	reply := make(chan Snapshot, 1)
	q.inbox.Put(message{kind: look, reply: reply})
	select {
	case s := <-reply:
		return s, nil
	case <-ctx.Done():
		return Snapshot{}, fmt.Errorf("wait for admission: %w", ctx.Err())
	}
}

// Explained is the explanation of the last decision on a pod. Of several pods of that name, one
// that replaces another, it is the last one decided on. For a pod that waits, what is free is that
// of the moment.
func (q *Queue) Explained(ctx context.Context, namespace, name string) (explain.Record, bool) {
	r, ok := q.admitter.explanations.find(namespace, name)
	if !ok || r.Outcome != string(Wait) {
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
	r.Free = explain.Free(s.beside(types.UID(r.Subject.UID), resources), resources)
	return r, ok
}

// Run decides until ctx ends; then it waits for the goroutines that it started.
func (q *Queue) Run(ctx context.Context) error {
	defer q.admitter.calls.wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.inbox.Wake():
			q.finish(ctx) // new pods see what has been given back
			q.read(ctx)
		case <-q.admitter.calls.done.Wake():
			q.finish(ctx)
		case <-timer.C:
		}
		q.sweep(ctx)
		for _, reply := range q.looking { // after the pods that were submitted before
			reply <- q.admitter.cfg.snapshot(q.admitter.view, q.admitter.pods.ledger)
		}
		q.looking = nil
		timer.Reset(q.untilNext())
	}
}

// read takes the inbox; pods to adopt go first, so that new ones see what those hold.
func (q *Queue) read(ctx context.Context) {
	q.admitter.pods.follow(q.admitter.cfg.Store.State())
	messages := q.inbox.Take()
	slices.SortStableFunc(messages, func(a, b message) int { return rank(a) - rank(b) })
	for _, m := range messages {
		switch m.kind {
		case submitPod:
			q.submitted(ctx, m)
		case leavePod:
			q.left(m)
		case releasePod:
			q.released(ctx, m.uid)
		case poke:
			q.changes.poked = true
		case look:
			q.looking = append(q.looking, m.reply)
		default:
			panic(fmt.Sprintf("admission: message kind %d", m.kind))
		}
	}
}

func rank(m message) int {
	if m.kind == submitPod && m.adopt {
		return 0
	}
	return 1
}

func (q *Queue) submitted(ctx context.Context, m message) {
	e := q.admitter.pods.find(m.uid)
	switch {
	case e == nil:
		held, stored := q.admitter.pods.stored.Pods[m.uid]
		q.changes.stays = q.changes.stays || stored
		q.admitter.pods.add(&entry{
			demand: q.admitter.cfg.demandOf(m.pod), tries: tries{since: time.Now()},
			runs: m.adopt && !q.admitter.pods.isVoid(held),
		})
	case e.state.goes():
		klog.FromContext(ctx).Info("Ignored a pod that was submitted while it is being released",
			"pod", klog.KObj(m.pod), "podUID", m.uid)
	default:
		q.admitter.pods.resubmit(e, q.admitter.cfg.demandOf(m.pod))
	}
}

// left takes that a pod terminates. One that waits waits no more.
func (q *Queue) left(m message) {
	if e := q.admitter.pods.find(m.uid); e != nil {
		e.ended = e.ended || m.ended
		q.admitter.pods.leave(e)
	}
}

func (q *Queue) released(ctx context.Context, uid types.UID) {
	e := q.admitter.pods.find(uid)
	if e == nil {
		held, stored := q.admitter.pods.stored.Pods[uid]
		if !stored {
			held.UID = uid
			q.admitter.cfg.Report(Result{Pod: held.Reference(), Outcome: Released})
			return
		}
		e = &entry{
			demand: q.admitter.cfg.demandOf(held.Reference()), tries: tries{since: time.Now()},
			state: terminating, has: reservation{pod: held},
		}
		q.admitter.pods.add(e)
	}
	switch transition(e.state, release) {
	case stay:
	case canceling:
		q.admitter.pods.move(e, canceling, e.has)
		e.tries.cancel()
	default:
		if e.state != admitted && e.state != terminating {
			q.admitter.pods.drop(e, withdrawn)
		}
		q.admitter.drop(ctx, e)
	}
}

// finish takes what goroutines brought back.
func (q *Queue) finish(ctx context.Context) {
	back := q.admitter.calls.done.Take()
	q.admitter.pods.follow(q.admitter.cfg.Store.State()) // what was committed is in it
	for _, c := range back {
		e := c.entry
		if c.call != e.tries.call || !e.state.underWay() {
			continue // late
		}
		e.tries.cancel()
		switch {
		case e.state == canceling:
			q.admitter.drop(ctx, e)
		case e.state == releasing && c.err == nil:
			q.admitter.drop(ctx, e)
		case e.state == releasing:
			q.admitter.pods.move(e, unreleased, e.has)
			e.tries.due = time.Now().Add(time.Second)
			q.admitter.pods.freed = true // for those who wait for this release alone
			if ctx.Err() == nil && !errors.Is(c.err, allocation.ErrStopped) {
				klog.FromContext(ctx).Info("Releasing resources is retried",
					"pod", klog.KObj(e.pod), "err", c.err)
			}
		case ctx.Err() != nil: // the agent stops; nothing is decided any more
		default:
			q.admitter.completed(e, c)
		}
	}
}

// sweep moves every entry on as far as it goes now, in the order of arrival. What that gives back
// may be what a pod waits for, so it goes on until nothing changes any more.
func (q *Queue) sweep(ctx context.Context) {
	now := time.Now()
	q.admitter.pods.follow(q.admitter.cfg.Store.State())
	q.changes.look(&q.admitter.view, q.admitter.cfg.view())
	for _, e := range slices.Clone(q.admitter.pods.order) {
		if e.tries.due.IsZero() || now.Before(e.tries.due) {
			continue
		}
		e.tries.due = time.Time{}
		switch {
		case e.state.underWay():
			q.admitter.saySlow(e)
		case e.state == brief:
			q.admitter.sayOwed(e)
		case e.state == behind:
			q.admitter.sayBehind(e)
		case e.state == unreleased:
			q.admitter.drop(ctx, e)
		default:
			q.admitter.pods.move(e, transition(e.state, timeUp), e.has)
		}
	}
	for first := true; q.admitter.requeue(q.takeChanges(), now) || first; first = false {
		t := newTurn(now)
		for i, e := range slices.Clone(q.admitter.pods.order) {
			if t.at = i; e.state == queued {
				q.admitter.attempt(ctx, e, t)
			}
			t.line.pass(&q.admitter, e)
			if e.claims() {
				t.ahead = allocation.AddRequests(t.ahead, e.requests)
			}
		}
	}
}

// takeChanges empties the changes.
func (q *Queue) takeChanges() changes {
	c := q.changes
	c.freed = q.admitter.pods.freed
	q.changes, q.admitter.pods.freed = changes{}, false
	return c
}

// untilNext is the time to the next deadline or retry.
func (q *Queue) untilNext() time.Duration {
	next := time.Hour
	for _, e := range q.admitter.pods.order {
		switch e.state {
		case waiting, retrying, deferred:
			next = min(next, time.Until(e.tries.since.Add(q.admitter.cfg.Wait)))
		}
		if !e.tries.due.IsZero() {
			next = min(next, time.Until(e.tries.due))
		}
	}
	return max(next, 0)
}
