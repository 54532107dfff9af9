package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// Outcome is what admission says of a pod.
type Outcome string

// The three outcomes. Wait may be followed by any outcome, Admit and Reject are final.
const (
	Admit  Outcome = "Admit"
	Wait   Outcome = "Wait"
	Reject Outcome = "Reject"
	// Released answers Release: nothing of the pod is held any more.
	Released Outcome = "Released"
)

// Reasons of pods that wait.
const (
	ReasonWaitPlugin    = "WaitingForDevicePlugin"
	ReasonWaitResources = "WaitingForResources"
	ReasonWaitDevices   = "WaitingForHealthyDevices"
	ReasonWaitStore     = "WaitingForStateFile"
)

// Plugins is what admission asks of the device plugins.
type Plugins interface {
	Inventory() deviceplugin.Inventory
	Preferred(ctx context.Context, req deviceplugin.PreferredRequest) ([]string, error)
	Allocate(ctx context.Context, resource string, ids []string) (
		*pluginapi.ContainerAllocateResponse, error)
}

// Handler is one check that a pod has to pass before resources are looked at. It is pure; nil
// means that the pod passes.
type Handler func(pod *v1.Pod) *allocation.Rejection

// Config is what the queue works with.
type Config struct {
	// Hardware is the machine now, with the policies on it. After a change, Poke.
	Hardware func() machine.Hardware
	// Reread has the machine looked at again; after it returns, Hardware has what was found. nil:
	// there is nothing to look at.
	Reread   func(ctx context.Context)
	Policy   topology.Policy
	Scope    topology.Scope
	Handlers []Handler // in order
	Store    *allocation.Store
	Plugins  Plugins
	// BootID is the kernel's boot id now.
	BootID string
	// Wait is how long a pod may wait; 0: it is rejected instead.
	Wait time.Duration
	// Report is told each outcome, from Run's goroutine. It must not block.
	Report func(Result)
	// Planned is told each plan, be it one of many for a pod that waits; nil: nobody is.
	Planned func(plan allocation.Plan, err error)
	// Unadvised is told of a plugin's preference that cannot be followed, or not in full, and why;
	// nil: nobody is. It is called from other goroutines than Run's.
	Unadvised func(pod *v1.Pod, key allocation.AskKey, err error)
}

// Queue decides on pods. Its methods do not block; Run does the work.
type Queue struct {
	cfg   Config
	inbox *mailbox.Box[message]
	done  *mailbox.Box[completion]

	// Owned by Run.
	entries []*entry // in order of arrival
	byUID   map[types.UID]*entry
	looking []chan<- Snapshot
	news    news
	view    view
	stored  allocation.State // as it is in the stakes
	stakes  stakes
	work    sync.WaitGroup

	records records
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
	submit messageKind = iota
	leave
	release
	poke
	look
)

// New returns a queue that knows no pods yet.
func New(cfg Config) *Queue {
	if cfg.Unadvised == nil {
		cfg.Unadvised = func(*v1.Pod, allocation.AskKey, error) {}
	}
	if cfg.Planned == nil {
		cfg.Planned = func(allocation.Plan, error) {}
	}
	return &Queue{
		cfg: cfg, inbox: mailbox.New[message](), done: mailbox.New[completion](),
		stakes: newStakes(), byUID: map[types.UID]*entry{},
	}
}

// Submit asks for a decision. adopt says that the pod's sandbox is alive in the runtime.
// Submitting a pod that was decided already changes nothing but the spec remembered.
func (q *Queue) Submit(pod *v1.Pod, adopt bool) {
	q.inbox.Put(message{kind: submit, pod: pod, uid: pod.UID, adopt: adopt})
}

// Leaving says that the pod has begun to terminate: pods may wait for what it holds.
func (q *Queue) Leaving(uid types.UID) { q.inbox.Put(message{kind: leave, uid: uid}) }

// Release gives back what the pod holds and forgets it. For a pod that still waits it withdraws
// the request. A uid that only the store knows is dropped there.
func (q *Queue) Release(uid types.UID) { q.inbox.Put(message{kind: release, uid: uid}) }

// Poke says that something changed that pods may be waiting for, such as the inventory.
func (q *Queue) Poke() { q.inbox.Put(message{kind: poke}) }

// Run decides until ctx ends; then it waits for the goroutines that it started.
func (q *Queue) Run(ctx context.Context) error {
	defer q.work.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.inbox.Wake():
			q.finish(ctx) // new pods see what has been given back
			q.read(ctx)
		case <-q.done.Wake():
			q.finish(ctx)
		case <-timer.C:
		}
		q.sweep(ctx)
		q.show()
		timer.Reset(q.untilNext())
	}
}

// read takes the inbox; pods to adopt go first, so that new ones see what those hold.
func (q *Queue) read(ctx context.Context) {
	q.follow()
	messages := q.inbox.Take()
	slices.SortStableFunc(messages, func(a, b message) int { return rank(a) - rank(b) })
	for _, m := range messages {
		switch m.kind {
		case submit:
			q.submitted(m)
		case leave:
			q.left(m.uid)
		case release:
			q.released(ctx, m.uid)
		case poke: // the round looks anyway
		case look:
			q.looking = append(q.looking, m.reply)
		default:
			panic(fmt.Sprintf("admission: message kind %d", m.kind))
		}
	}
}

func rank(m message) int {
	if m.kind == submit && m.adopt {
		return 0
	}
	return 1
}

func (q *Queue) submitted(m message) {
	e := q.find(m.uid)
	switch {
	case e == nil:
		q.enter(&entry{demand: demandOf(m.pod), adopt: m.adopt, since: time.Now()})
		if _, stored := q.stored.Pods[m.uid]; stored {
			q.news.stays = true
		}
	case e.phase == releasing || e.gone || e.leaving:
		e.again = m.pod
	default:
		e.demand = demandOf(m.pod)
		q.account(m.uid, e)
	}
}

func (q *Queue) enter(e *entry) {
	q.entries = append(q.entries, e)
	q.byUID[e.pod.UID] = e
	q.account(e.pod.UID, e)
}

// left takes that a pod terminates. One that waits waits no more.
func (q *Queue) left(uid types.UID) {
	e := q.find(uid)
	if e == nil {
		return
	}
	e.leaving = true
	if e.phase == queued || e.phase == waiting {
		q.letGo(e)
	}
	q.account(uid, e)
}

func (q *Queue) released(ctx context.Context, uid types.UID) {
	e := q.find(uid)
	if e == nil {
		held, ok := q.stored.Pods[uid]
		if !ok {
			q.cfg.Report(Result{Pod: podOf(allocation.Pod{UID: uid}), Outcome: Released})
			return
		}
		e = &entry{
			demand: demandOf(podOf(held)),
			phase:  admitted, grip: grip{reserved: held}, since: time.Now(),
		}
		q.enter(e)
	}
	switch e.phase {
	case queued, waiting, rejected:
		e.again = nil
		q.letGo(e)
		q.drop(ctx, e)
	case admitted:
		q.drop(ctx, e)
	case busy:
		e.gone, e.leaving, e.again = true, true, nil
		q.account(uid, e)
		e.cancel()
	case releasing:
		e.again = nil
	default:
		panic(fmt.Sprintf("admission: phase %d", e.phase))
	}
}

// drop forgets an entry; what the store has of it is dropped first.
func (q *Queue) drop(ctx context.Context, e *entry) {
	uid := e.pod.UID
	if _, stored := q.stored.Pods[uid]; !stored {
		q.forget(e)
		return
	}
	e.retryAt = time.Time{}
	q.move(e, releasing, e.grip)
	q.work.Go(func() {
		err := q.cfg.Store.Commit(ctx, allocation.Change{Drop: uid})
		q.done.Put(completion{entry: e, err: err})
	})
}

func (q *Queue) forget(e *entry) {
	q.records.drop(e.pod.UID)
	q.news.freed = q.news.freed || e.holds()
	q.entries = slices.DeleteFunc(q.entries, func(other *entry) bool { return other == e })
	delete(q.byUID, e.pod.UID)
	q.account(e.pod.UID, nil)
	q.cfg.Report(Result{Pod: e.pod, Outcome: Released})
	if e.again != nil {
		q.enter(&entry{demand: demandOf(e.again), since: time.Now()})
	}
}

// sweep moves every entry on as far as it goes now, in the order of arrival. What that gives back
// may be what a pod waits for, so it goes on until nothing changes any more.
func (q *Queue) sweep(ctx context.Context) {
	now := time.Now()
	q.follow()
	q.look()
	for _, e := range q.entries {
		if e.retryAt.IsZero() || now.Before(e.retryAt) {
			continue
		}
		e.retryAt = time.Time{}
		switch e.phase {
		case releasing:
			q.drop(ctx, e)
		case busy:
			q.saySlow(e)
		case waiting:
			e.phase = queued
		default: // decided meanwhile
		}
	}
	for first := true; q.spread(now) || first; first = false {
		t := q.turn(now)
		for i, e := range slices.Clone(q.entries) {
			if t.at = i; e.phase == queued {
				q.attempt(ctx, e, t)
			}
			if e.claimed {
				add(t.ahead, e.requests)
			}
		}
	}
}

// saySlow tells of a plugin that takes its time; that it is called again was told. Where pods do
// not wait there is nothing to tell: like the kubelet's, such a pod is pending until Allocate
// returns.
func (q *Queue) saySlow(e *entry) {
	if q.cfg.Wait <= 0 {
		return
	}
	if resources := e.unanswered(); len(resources) > 0 && e.retries == 0 && !e.adopt {
		q.say(e, Wait, ReasonWaitPlugin,
			"no answer yet from the device plugin of "+strings.Join(resources, ", "))
	}
}

func (q *Queue) expired(e *entry, now time.Time) bool {
	return now.Sub(e.since) >= q.cfg.Wait
}

// untilNext is the time to the next deadline or retry.
func (q *Queue) untilNext() time.Duration {
	next := time.Hour
	for _, e := range q.entries {
		if e.phase == waiting && !e.leaving && !e.brief {
			next = min(next, time.Until(e.since.Add(q.cfg.Wait)))
		}
		if !e.retryAt.IsZero() {
			next = min(next, time.Until(e.retryAt))
		}
	}
	return max(next, 0)
}

// say reports an outcome once.
func (q *Queue) say(e *entry, outcome Outcome, reason, message string) {
	r := Result{Pod: e.pod, Outcome: outcome, Reason: reason, Message: message}
	if r.Outcome == e.said.Outcome && r.Reason == e.said.Reason && r.Message == e.said.Message {
		return
	}
	r.Reworded = r.Outcome == e.said.Outcome && r.Reason == e.said.Reason
	e.said = r
	r.Explained = q.explain(e, r)
	if outcome != Wait {
		r.Tried, e.tried = e.tried, nil
	}
	q.cfg.Report(r)
}

// find returns nil for a pod that is not known.
func (q *Queue) find(uid types.UID) *entry { return q.byUID[uid] }

// finish takes what goroutines brought back.
func (q *Queue) finish(ctx context.Context) {
	log, back := klog.FromContext(ctx), q.done.Take()
	q.follow() // what was committed is in it
	for _, c := range back {
		e := c.entry
		switch {
		case e.phase == releasing && c.err == nil:
			q.forget(e)
		case e.phase == releasing:
			e.retryAt = time.Now().Add(time.Second)
			q.news.freed = true // for those who wait for this release alone
			if !errors.Is(c.err, allocation.ErrStopped) && ctx.Err() == nil {
				log.Info("Releasing resources is retried", "pod", klog.KObj(e.pod), "err", c.err)
			}
		case e.gone:
			q.drop(ctx, e)
		default:
			q.completed(ctx, c)
		}
	}
}
