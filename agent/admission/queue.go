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
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cpumanager"
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
)

// Reasons of pods that wait.
const (
	ReasonWaitPlugin    = "WaitingForDevicePlugin"
	ReasonWaitResources = "WaitingForResources"
	ReasonWaitStore     = "WaitingForStateFile"
)

// Result is an outcome with the words for it; Admit has none.
type Result struct {
	Pod             *v1.Pod
	Outcome         Outcome
	Reason, Message string
	// Explained is the gist of the explanation, for the log.
	Explained string
}

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
	Machine  *topology.Machine
	CPUs     *cpumanager.Static // nil: policy none
	Policy   topology.Policy
	Scope    topology.Scope
	Options  topology.Options
	Handlers []Handler // in order
	// Allocatable is what pods may request, without devices.
	Allocatable v1.ResourceList
	Store       *allocation.Store
	Plugins     Plugins
	// BootID is the kernel's boot id now.
	BootID string
	// Wait is how long a pod may wait; 0: it is rejected instead.
	Wait time.Duration
	// Report is told each outcome, from Run's goroutine. It must not block.
	Report func(Result)
	// Planned is told each plan and how long it took, for metrics; nil: nobody is.
	Planned func(plan allocation.Plan, err error, took time.Duration)
}

// Queue decides on pods. Its methods do not block; Run does the work.
type Queue struct {
	cfg   Config
	inbox *mailbox.Box[message]
	done  *mailbox.Box[completion]

	// Owned by Run.
	entries []*entry // in order of arrival
	work    sync.WaitGroup

	records records
}

type phase int

const (
	queued    phase = iota
	waiting         // until something changes, retryAt or the deadline
	busy            // a goroutine asks plugins or commits
	admitted        // holds its assignment
	releasing       // a goroutine drops it from the store
	rejected        // remembered until it is released, so that it is not decided twice
)

// entry is one pod that admission knows.
type entry struct {
	demand
	phase   phase
	adopt   bool // its sandbox is alive
	leaving bool // it terminates; what it holds will be free
	since   time.Time

	advice   allocation.Advice
	reserved allocation.Pod // what it holds or is about to
	// tentative: reserved is what it would get without the advice that is being asked for.
	tentative bool
	retryAt   time.Time
	retries   int
	words
	again  *v1.Pod // submitted anew before it was released
	gone   bool    // released while busy
	cancel context.CancelFunc
}

// demand is a pod and what it requests of the node.
type demand struct {
	pod      *v1.Pod
	requests v1.ResourceList
	shares   bool // some of its containers share CPUs
}

func demandOf(pod *v1.Pod) demand {
	return demand{pod: pod, requests: node.Requests(pod), shares: cpumanager.Shares(pod)}
}

type message struct {
	kind  messageKind
	pod   *v1.Pod
	uid   types.UID
	adopt bool
}

type messageKind int

const (
	submit messageKind = iota
	leave
	release
	poke
)

// New returns a queue that knows no pods yet.
func New(cfg Config) *Queue {
	if cfg.Planned == nil {
		cfg.Planned = func(allocation.Plan, error, time.Duration) {}
	}
	return &Queue{cfg: cfg, inbox: mailbox.New[message](), done: mailbox.New[completion]()}
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
			q.read(ctx)
			q.retryAll()
		case <-q.done.Wake():
			if q.finish(ctx) {
				q.retryAll()
			}
		case <-timer.C:
		}
		q.sweep(ctx)
		timer.Reset(q.untilNext())
	}
}

// read takes the inbox; pods to adopt go first, so that new ones see what those hold.
func (q *Queue) read(ctx context.Context) {
	messages := q.inbox.Take()
	slices.SortStableFunc(messages, func(a, b message) int { return rank(a) - rank(b) })
	for _, m := range messages {
		switch m.kind {
		case submit:
			q.submitted(m)
		case leave:
			if e := q.find(m.uid); e != nil {
				e.leaving = true
			}
		case release:
			q.released(ctx, m.uid)
		case poke:
			q.retryAt(time.Time{})
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
		q.entries = append(q.entries, &entry{
			demand: demandOf(m.pod), adopt: m.adopt, since: time.Now(),
		})
	case e.phase == releasing || e.gone || e.leaving:
		e.again = m.pod
	default:
		e.demand = demandOf(m.pod)
	}
}

func (q *Queue) released(ctx context.Context, uid types.UID) {
	e := q.find(uid)
	if e == nil {
		held, ok := q.cfg.Store.State().Pods[uid]
		if !ok {
			return
		}
		e = &entry{
			demand: demandOf(podOf(held)),
			phase:  admitted, reserved: held, since: time.Now(),
		}
		q.entries = append(q.entries, e)
	}
	switch e.phase {
	case queued, waiting, rejected:
		e.again = nil
		q.drop(ctx, e)
	case admitted:
		q.drop(ctx, e)
	case busy:
		e.gone, e.leaving, e.again = true, true, nil
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
	if _, stored := q.cfg.Store.State().Pods[uid]; !stored {
		q.forget(e)
		return
	}
	e.phase, e.retryAt = releasing, time.Time{}
	q.work.Go(func() {
		err := q.cfg.Store.Commit(ctx, allocation.Change{Drop: uid})
		q.done.Put(completion{entry: e, err: err})
	})
}

func (q *Queue) forget(e *entry) {
	q.records.drop(e.pod.UID)
	q.entries = slices.DeleteFunc(q.entries, func(other *entry) bool { return other == e })
	if e.again != nil {
		q.entries = append(q.entries, &entry{demand: demandOf(e.again), since: time.Now()})
	}
}

// retryAt sets when pods that wait for a set time try again; zero: with the others.
func (q *Queue) retryAt(t time.Time) {
	for _, e := range q.entries {
		if e.phase == waiting {
			e.retryAt = t
		}
	}
}

// retryAll lets every waiting pod try again, but for those that wait for a set time.
func (q *Queue) retryAll() {
	for _, e := range q.entries {
		if e.phase == waiting && e.retryAt.IsZero() {
			e.phase = queued
		}
	}
}

// sweep moves every entry on as far as it goes now.
func (q *Queue) sweep(ctx context.Context) {
	now := time.Now()
	for _, e := range slices.Clone(q.entries) {
		due := !e.retryAt.IsZero() && !now.Before(e.retryAt)
		switch {
		case e.phase == releasing && due:
			q.drop(ctx, e)
		case e.phase == busy && due:
			e.retryAt = time.Time{}
			if resources := e.unanswered(); len(resources) > 0 {
				q.say(e, Wait, ReasonWaitPlugin,
					"no answer yet from the device plugin of "+strings.Join(resources, ", "))
			}
		case e.phase == queued, e.phase == waiting && (due || q.expired(e, now)):
			e.retryAt = time.Time{}
			q.attempt(ctx, e, now)
		}
	}
}

func (q *Queue) expired(e *entry, now time.Time) bool {
	return now.Sub(e.since) >= q.cfg.Wait
}

// untilNext is the time to the next deadline or retry.
func (q *Queue) untilNext() time.Duration {
	next := time.Hour
	for _, e := range q.entries {
		if e.phase == waiting {
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
	e.said = r
	r.Explained = q.explain(e, r)
	q.cfg.Report(r)
}

func (q *Queue) find(uid types.UID) *entry {
	for _, e := range q.entries {
		if e.pod.UID == uid {
			return e
		}
	}
	return nil
}

// finish takes what goroutines brought back and tells whether anything became free.
func (q *Queue) finish(ctx context.Context) (freed bool) {
	log := klog.FromContext(ctx)
	for _, c := range q.done.Take() {
		e := c.entry
		switch {
		case e.phase == releasing && c.err == nil:
			q.forget(e)
			freed = true
		case e.phase == releasing:
			e.retryAt = time.Now().Add(time.Second)
			if !errors.Is(c.err, allocation.ErrStopped) && ctx.Err() == nil {
				log.Info("Releasing resources is retried", "pod", klog.KObj(e.pod), "err", c.err)
			}
		case e.gone:
			q.drop(ctx, e)
			freed = true
		default:
			q.completed(ctx, c)
		}
	}
	return freed
}
