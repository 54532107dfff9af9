package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/mailbox"
)

// Queue decides on pods. Its methods do not block; Run does the work.
type Queue struct {
	inbox *mailbox.Box[message]

	// Owned by Run.
	admitter admitter
	looking  []chan<- decide.Snapshot
}

type message struct {
	kind  messageKind
	pod   *v1.Pod
	uid   types.UID
	adopt bool
	ended bool                   // of a pod that leaves
	reply chan<- decide.Snapshot // of a look
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
		cfg.Preempt = func(report.Preemption) {}
	}
	if cfg.Claims == nil {
		cfg.Claims = noClaims{}
	}
	if cfg.Unadvised == nil {
		cfg.Unadvised = func(*v1.Pod, allocation.AskKey, error) {}
	}
	q := &Queue{inbox: mailbox.New[message](), admitter: admitter{
		cfg: cfg, pods: line.New(cfg.BootID, claimsOf(cfg.Claims)), slow: sets.Set[string]{},
		calls:    calls{cfg: cfg, done: mailbox.New[answer](), last: map[types.UID]*call{}},
		reporter: report.New(cfg.Report, cfg.Plugins, cfg.Wait),
	}}
	return q
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

// Snapshot returns the inputs of a decision on a pod submitted now. It waits for Run, which does not
// wait for it.
func (q *Queue) Snapshot(ctx context.Context) (decide.Snapshot, error) {
	reply := make(chan decide.Snapshot, 1)
	q.inbox.Put(message{kind: look, reply: reply})
	select {
	case s := <-reply:
		return s, nil
	case <-ctx.Done():
		return decide.Snapshot{}, fmt.Errorf("wait for admission: %w", ctx.Err())
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
			a.finish(ctx) // new pods see what has been given back
			q.read(ctx)
		case <-a.calls.done.Wake():
			a.finish(ctx)
		case <-timer.C:
		}
		a.sweep(ctx)
		for _, reply := range q.looking { // after the pods that were submitted before
			reply <- a.Snapshot(a.pods.Ledger)
		}
		q.looking = nil
		timer.Reset(a.untilNext())
	}
}

// read takes the inbox; pods to adopt go first, so that new ones see what those hold.
func (q *Queue) read(ctx context.Context) {
	q.admitter.follow()
	messages := q.inbox.Take()
	slices.SortStableFunc(messages, func(a, b message) int { return rank(a) - rank(b) })
	for _, m := range messages {
		switch m.kind {
		case submitPod:
			q.admitter.submitted(ctx, m.pod, m.adopt)
		case leavePod:
			if e := q.admitter.pods.Find(m.uid); e != nil {
				q.admitter.Tell(ctx, e, record.Left{Ended: m.ended})
			}
		case releasePod:
			q.admitter.released(ctx, m.uid)
		case poke:
			q.admitter.changes.poked = true
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
