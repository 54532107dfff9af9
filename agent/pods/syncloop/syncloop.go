// Package syncloop runs the one goroutine that feeds what happens to pods to their records
// (agent/pods/pod) and carries out the effects. It decides nothing itself, and waits for nothing but the
// next event.
package syncloop

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Admission decides on pods; *admission.Queue implements it. No method blocks.
type Admission interface {
	Submit(pod *v1.Pod, adopt bool)
	Resize(pod *v1.Pod)
	Leaving(uid types.UID, ended bool)
	Release(uid types.UID)
	Poke()
}

// Workers bring pods to what is desired; *podworker.Workers implement it. No method blocks.
type Workers interface {
	Update(podworker.Desired)
	Hasten(podworker.Desired)
	Wake(types.UID)
}

// Inputs holds what the loop waits for.
type Inputs struct {
	Updates   <-chan source.Update
	Observed  <-chan types.UID // pods of which the runtime reports a change
	Decisions *mailbox.Box[report.Result]
	Events    *mailbox.Box[Event]
	// Capacity has a value when waiting pods may have a place: what plugins offer, or the hardware,
	// has changed.
	Capacity <-chan struct{}
}

// Event is an event of one pod from a part of the agent, such as its worker or housekeeping.
type Event struct {
	UID types.UID
	pod.Event
}

// Of returns an event that says nothing beside its kind.
func Of(uid types.UID, kind pod.EventKind) Event { return Event{uid, pod.Event{Kind: kind}} }

// Killed says that the node ends a pod within grace; 0: within the pod's own grace period.
func Killed(uid types.UID, why pod.Why, grace time.Duration) Event {
	return Event{uid, pod.Event{Kind: pod.Killed, Why: why, Grace: grace}}
}

// Settled says that what runs of a pod has the resources that it was allocated, or what keeps it from them.
func Settled(uid types.UID, err error) Event {
	e := Of(uid, pod.Settled)
	if err != nil {
		e.Why.Message = err.Error()
	}
	return e
}

// Orphaned says that something of a pod was found on the node.
func Orphaned(p *v1.Pod) Event {
	return Event{UID: p.UID, Event: pod.Event{Kind: pod.Orphaned, Pod: p}}
}

// Config configures a loop.
type Config struct {
	Inputs Inputs
	// Runtime returns the newest observation of a pod.
	Runtime func(types.UID) (cri.Pod, bool)
	// Allocated returns the resources that an earlier run of the agent allocated a pod, which the runtime
	// has like this; nil: unknown. A nil function knows of none.
	Allocated func(types.UID, cri.Pod) *podspec.Resources
	// Resized is called for a pod that was allocated other resources, and must have an event pod.Settled
	// follow. Optional.
	Resized func(types.UID)
	// PendingKill returns why and within which grace period an earlier run of the agent was about to
	// end a pod; ok is false if it was not. A nil function knows of none.
	PendingKill func(*v1.Pod) (why pod.Why, grace time.Duration, ok bool)
	Admission   Admission
	Workers     Workers
	Statuses    *podstatus.Store
	// Tell records an event of a pod; it must not block.
	Tell func(pod *v1.Pod, eventType, reason, message string)
	// Stepped is called with each event of a pod, and with its record before and after it. Optional.
	Stepped func(was, is pod.Record, e pod.Event)
	// Restarted is called for a pod that begins again, desired again before it was gone. Optional.
	Restarted func(*v1.Pod)
	// SeenAll reports whether seen holds for every source.
	SeenAll func(seen func(source string) bool) bool
	// Heard is called once, when the first pods of every source were handled. It must not block.
	// Optional.
	Heard func()
}

// Loop is the syncLoop.
type Loop struct {
	cfg Config
	// entered is the time of the loop's last round in nanoseconds; Healthy reads it.
	entered atomic.Int64

	// Owned by Run.
	records map[types.UID]pod.Record
	seen    map[string]bool // sources of which an update was handled
	heard   bool            // all of them
}

// New returns a loop that knows no pods yet.
func New(cfg Config) *Loop {
	if cfg.Allocated == nil {
		cfg.Allocated = func(types.UID, cri.Pod) *podspec.Resources { return nil }
	}
	if cfg.Resized == nil {
		cfg.Resized = func(types.UID) {}
	}
	if cfg.PendingKill == nil {
		cfg.PendingKill = func(*v1.Pod) (pod.Why, time.Duration, bool) { return pod.Why{}, 0, false }
	}
	if cfg.Stepped == nil {
		cfg.Stepped = func(pod.Record, pod.Record, pod.Event) {}
	}
	if cfg.Restarted == nil {
		cfg.Restarted = func(*v1.Pod) {}
	}
	if cfg.Heard == nil {
		cfg.Heard = func() {}
	}
	return &Loop{cfg: cfg, records: map[types.UID]pod.Record{}, seen: map[string]bool{}}
}

// period is the longest time between two rounds, which Healthy looks for.
const period = time.Second

// Run handles events until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.Tick(period)
	for {
		l.entered.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return nil
		case u := <-l.cfg.Inputs.Updates:
			l.takeEvents(ctx) // the update may be an answer to what others were told of these
			l.update(ctx, u)
		case uid := <-l.cfg.Inputs.Observed:
			l.feed(ctx, uid, pod.Event{Kind: pod.Observed, Runtime: l.observed(uid)})
		case <-l.cfg.Inputs.Decisions.Wake():
			for _, r := range l.cfg.Inputs.Decisions.Take() {
				l.decided(ctx, r)
			}
		case <-l.cfg.Inputs.Events.Wake():
			l.takeEvents(ctx)
		case <-l.cfg.Inputs.Capacity:
			l.cfg.Admission.Poke()
		case <-tick: // Healthy looks for the round itself
			l.hearing()
		}
	}
}

func (l *Loop) takeEvents(ctx context.Context) {
	for _, e := range l.cfg.Inputs.Events.Take() {
		e.Heard = e.Kind == pod.Orphaned && l.hearing()
		l.feed(ctx, e.UID, e.Event)
	}
}

// hearing reports whether every source was heard. The first time it calls Heard.
func (l *Loop) hearing() bool {
	if !l.heard && l.cfg.SeenAll(func(source string) bool { return l.seen[source] }) {
		l.heard = true
		l.cfg.Heard()
	}
	return l.heard
}

// Healthy returns an error if the loop's last round is longer ago than limit.
func (l *Loop) Healthy(now time.Time, limit time.Duration) error {
	entered := l.entered.Load()
	if entered == 0 {
		return nil // it has not begun
	}
	if ago := now.Sub(time.Unix(0, entered)); ago > limit {
		return fmt.Errorf("the syncLoop last came round %v ago; the limit is %v", ago, limit)
	}
	return nil
}

// feed steps the record of a pod and carries out the effects.
func (l *Loop) feed(ctx context.Context, uid types.UID, e pod.Event) {
	was := l.records[uid]
	next, effects := pod.Step(was, e)
	l.cfg.Stepped(was, next, e)
	if next.State == pod.None {
		delete(l.records, uid)
	} else {
		l.records[uid] = next
	}
	for _, f := range effects {
		l.carryOut(ctx, f)
	}
}
