package admission

import (
	"context"
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
	cfg   Config
	inbox *mailbox.Box[message]
	calls calls
	// explanations are read from other goroutines.
	explanations explanations

	// Owned by Run.
	pods    *pods
	view    view
	changes changes
	looking []chan<- Snapshot
}

type message struct {
	kind  messageKind
	pod   *v1.Pod
	uid   types.UID
	adopt bool
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
	if cfg.Unadvised == nil {
		cfg.Unadvised = func(*v1.Pod, allocation.AskKey, error) {}
	}
	q := &Queue{cfg: cfg, inbox: mailbox.New[message](), pods: newPods(cfg.BootID)}
	q.calls = calls{cfg: &q.cfg, done: mailbox.New[completion]()}
	return q
}

// Submit asks for a decision. adopt says that the pod's sandbox is alive in the runtime.
// Submitting a pod that was decided already changes nothing but the spec remembered. A pod that
// terminates is not submitted before it is Released.
func (q *Queue) Submit(pod *v1.Pod, adopt bool) {
	q.inbox.Put(message{kind: submitPod, pod: pod, uid: pod.UID, adopt: adopt})
}

// Leaving says that the pod has begun to terminate: pods may wait for what it holds.
func (q *Queue) Leaving(uid types.UID) { q.inbox.Put(message{kind: leavePod, uid: uid}) }

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
// that replaces another, it is the last one decided on.
func (q *Queue) Explained(namespace, name string) (explain.Record, bool) {
	return q.explanations.find(namespace, name)
}

// Run decides until ctx ends; then it waits for the goroutines that it started.
func (q *Queue) Run(ctx context.Context) error {
	defer q.calls.wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.inbox.Wake():
			q.finish(ctx) // new pods see what has been given back
			q.read(ctx)
		case <-q.calls.done.Wake():
			q.finish(ctx)
		case <-timer.C:
		}
		q.sweep(ctx)
		for _, reply := range q.looking { // after the pods that were submitted before
			reply <- q.cfg.snapshot(q.view, q.pods.ledger)
		}
		q.looking = nil
		timer.Reset(q.untilNext())
	}
}

// read takes the inbox; pods to adopt go first, so that new ones see what those hold.
func (q *Queue) read(ctx context.Context) {
	q.pods.follow(q.cfg.Store.State())
	messages := q.inbox.Take()
	slices.SortStableFunc(messages, func(a, b message) int { return rank(a) - rank(b) })
	for _, m := range messages {
		switch m.kind {
		case submitPod:
			q.submitted(ctx, m)
		case leavePod:
			q.left(m.uid)
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
	e := q.pods.find(m.uid)
	switch {
	case e == nil:
		held, stored := q.pods.stored.Pods[m.uid]
		q.changes.stays = q.changes.stays || stored
		q.pods.add(&entry{
			demand: demandOf(m.pod), since: time.Now(), runs: m.adopt && !q.pods.isVoid(held),
		})
	case e.state.goes():
		klog.FromContext(ctx).Info("Ignored a pod that was submitted while it is being released",
			"pod", klog.KObj(m.pod), "podUID", m.uid)
	default:
		q.pods.resubmit(e, m.pod)
	}
}

// left takes that a pod terminates. One that waits waits no more.
func (q *Queue) left(uid types.UID) {
	e := q.pods.find(uid)
	if e == nil {
		return
	}
	switch to := transition(e.state, leave); to {
	case stay:
	case withdrawn:
		q.pods.drop(e, to)
	default:
		q.pods.move(e, to, e.has)
	}
}

func (q *Queue) released(ctx context.Context, uid types.UID) {
	e := q.pods.find(uid)
	if e == nil {
		held, stored := q.pods.stored.Pods[uid]
		if !stored {
			held.UID = uid
			q.cfg.Report(Result{Pod: held.Reference(), Outcome: Released})
			return
		}
		e = &entry{
			demand: demandOf(held.Reference()), since: time.Now(),
			state: terminating, has: reservation{pod: held},
		}
		q.pods.add(e)
	}
	switch transition(e.state, release) {
	case stay:
	case canceling:
		q.pods.move(e, canceling, e.has)
		e.tries.cancel()
	default:
		if e.state != admitted && e.state != terminating {
			q.pods.drop(e, withdrawn)
		}
		q.drop(ctx, e)
	}
}

// drop forgets an entry; what the store has of it is dropped first.
func (q *Queue) drop(ctx context.Context, e *entry) {
	if _, stored := q.pods.stored.Pods[e.pod.UID]; !stored {
		q.explanations.drop(e.pod.UID)
		q.pods.remove(e)
		q.cfg.Report(Result{Pod: e.pod, Outcome: Released})
		return
	}
	q.pods.move(e, releasing, e.has)
	q.calls.start(ctx, e, time.Time{}, func(ctx context.Context) completion {
		return completion{err: q.cfg.Store.Commit(ctx, allocation.Change{Drop: e.pod.UID})}
	})
}

// finish takes what goroutines brought back.
func (q *Queue) finish(ctx context.Context) {
	back := q.calls.done.Take()
	q.pods.follow(q.cfg.Store.State()) // what was committed is in it
	for _, c := range back {
		e := c.entry
		if c.call != e.tries.call || !e.state.underWay() {
			continue // late
		}
		e.tries.cancel()
		switch {
		case e.state == canceling:
			q.drop(ctx, e)
		case e.state == releasing && c.err == nil:
			q.drop(ctx, e)
		case e.state == releasing:
			q.pods.move(e, unreleased, e.has)
			e.due, q.pods.freed = time.Now().Add(time.Second), true // for those who wait for it alone
			if ctx.Err() == nil && !isStopped(c.err) {
				klog.FromContext(ctx).Info("Releasing resources is retried",
					"pod", klog.KObj(e.pod), "err", c.err)
			}
		case ctx.Err() != nil: // the agent stops; nothing is decided any more
		default:
			q.completed(e, c)
		}
	}
}

// sweep moves every entry on as far as it goes now, in the order of arrival. What that gives back
// may be what a pod waits for, so it goes on until nothing changes any more.
func (q *Queue) sweep(ctx context.Context) {
	now := time.Now()
	q.pods.follow(q.cfg.Store.State())
	q.changes.look(&q.view, q.cfg.view())
	for _, e := range slices.Clone(q.pods.order) {
		if e.due.IsZero() || now.Before(e.due) {
			continue
		}
		e.due = time.Time{}
		switch {
		case e.state.underWay():
			q.saySlow(e)
		case e.state == unreleased:
			q.drop(ctx, e)
		default:
			q.pods.move(e, transition(e.state, timeUp), e.has)
		}
	}
	for first := true; q.requeue(now) || first; first = false {
		t := newTurn(now)
		for i, e := range slices.Clone(q.pods.order) {
			if t.at = i; e.state == queued {
				q.attempt(ctx, e, t)
			}
			if e.claims() {
				t.ahead = allocation.AddRequests(t.ahead, e.requests)
			}
		}
	}
}

func (q *Queue) expired(e *entry, now time.Time) bool {
	return now.Sub(e.since) >= q.cfg.Wait
}

// untilNext is the time to the next deadline or retry.
func (q *Queue) untilNext() time.Duration {
	next := time.Hour
	for _, e := range q.pods.order {
		switch e.state {
		case waiting, retrying, deferred:
			next = min(next, time.Until(e.since.Add(q.cfg.Wait)))
		}
		if !e.due.IsZero() {
			next = min(next, time.Until(e.due))
		}
	}
	return max(next, 0)
}
