// Package syncloop is the one goroutine that hands on what happens to pods: it feeds events to the
// records of agent/pod and carries out the effects. It decides nothing itself and waits for nothing
// but the next event.
package syncloop

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Admission decides on pods; *admission.Queue does. Nothing blocks.
type Admission interface {
	Submit(pod *v1.Pod, adopt bool)
	Leaving(uid types.UID, ended bool)
	Release(uid types.UID)
	Poke()
}

// Workers bring pods to what is desired; *podworker.Workers do. Nothing blocks.
type Workers interface {
	Update(podworker.Desired)
	Hasten(podworker.Desired)
	Wake(types.UID)
}

// Inputs are what the loop waits for.
type Inputs struct {
	Updates   <-chan source.Update
	Observed  <-chan types.UID // pods of which the runtime says something else
	Decisions *mailbox.Box[admission.Result]
	Events    *mailbox.Box[Event]
	// Capacity has a value when pods that wait may have a place: plugins offer something else, or
	// the hardware is another.
	Capacity <-chan struct{}
}

// Event is an event of one pod from a part of the agent: its worker, housekeeping, an eviction.
type Event struct {
	UID types.UID
	pod.Event
}

// Ending is that a pod has come to its end, of which others are about to hear.
func Ending(uid types.UID) Event { return Event{UID: uid, Event: pod.Event{Kind: pod.Ending}} }

// Config is what a loop works with.
type Config struct {
	Inputs Inputs
	// Runtime is the newest observation of a pod.
	Runtime func(types.UID) (cri.Pod, bool)
	// Admitted are the resources that a pod of the runtime was admitted with by an earlier run of
	// the agent, nil for one of which that is not known; a nil function: of none it is.
	Admitted  func(cri.Pod) *podspec.Resources
	Admission Admission
	Workers   Workers
	Statuses  *podstatus.Store
	// Tell records an event of a pod; it must not block.
	Tell func(pod *v1.Pod, eventType, reason, message string)
	// Restarted is told of a pod that was desired again before what ran of it was gone; nil:
	// nobody is.
	Restarted func(*v1.Pod)
	// SeenAll reports whether every source is one that seen knows. Before that no pod is an orphan.
	SeenAll func(seen func(source string) bool) bool
	// Heard is told once that what every source had at first was handled; nil: nobody is. It must
	// not block.
	Heard func()
}

// Loop is the syncLoop.
type Loop struct {
	cfg Config
	// entered is when the loop last came round, in nanoseconds; read by Healthy.
	entered atomic.Int64

	// Owned by Run.
	records map[types.UID]pod.Record
	seen    map[string]bool // sources of which an update was handled
	heard   bool            // all of them
}

// New returns a loop that knows no pods yet.
func New(cfg Config) *Loop {
	if cfg.Admitted == nil {
		cfg.Admitted = func(cri.Pod) *podspec.Resources { return nil }
	}
	if cfg.Restarted == nil {
		cfg.Restarted = func(*v1.Pod) {}
	}
	if cfg.Heard == nil {
		cfg.Heard = func() {}
	}
	return &Loop{cfg: cfg, records: map[types.UID]pod.Record{}, seen: map[string]bool{}}
}

// period is how often the loop comes round at least: Healthy looks for it.
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
			l.takeEvents(ctx) // the update may follow from what others were told of these
			l.update(ctx, u)
		case uid := <-l.cfg.Inputs.Observed:
			l.feed(uid, pod.Event{Kind: pod.Observed, Runtime: l.observed(uid)})
			l.cfg.Workers.Wake(uid)
		case <-l.cfg.Inputs.Decisions.Wake():
			for _, r := range l.cfg.Inputs.Decisions.Take() {
				l.decided(ctx, r)
			}
		case <-l.cfg.Inputs.Events.Wake():
			l.takeEvents(ctx)
		case <-l.cfg.Inputs.Capacity:
			l.cfg.Admission.Poke()
		case <-tick: // the round itself is what Healthy looks for
			l.hearing()
		}
	}
}

func (l *Loop) takeEvents(ctx context.Context) {
	for _, e := range l.cfg.Inputs.Events.Take() {
		l.event(ctx, e)
	}
}

// hearing reports whether every source was heard, and tells of it when it is so for the first time.
func (l *Loop) hearing() bool {
	if !l.heard && l.cfg.SeenAll(func(source string) bool { return l.seen[source] }) {
		l.heard = true
		l.cfg.Heard()
	}
	return l.heard
}

// Healthy is an error when the loop has not come round for longer than limit.
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

// feed takes an event of a pod.
func (l *Loop) feed(uid types.UID, e pod.Event) {
	before := l.records[uid]
	next, effects := pod.Step(before, e)
	if next.State == pod.None {
		delete(l.records, uid)
	} else {
		l.records[uid] = next
	}
	for _, f := range effects {
		l.carryOut(f)
	}
	if before.Next != nil && !before.Orphan && next.State == pod.Deciding {
		l.cfg.Restarted(next.Pod)
	}
}
