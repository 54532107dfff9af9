package line

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Event is one of the types below: something that happens to the pods. Step knows all of them.
type Event any

type (
	// Recorded: the store has this state.
	Recorded struct{ State allocation.State }
	// Seen: the node is like this, its pods apart.
	Seen struct{ View decide.View }
	// Poked: something changed that a handler, a claim or an object of the API server depends on.
	Poked struct{}

	// Submitted: the pod has come, or requests something else. Adopt: its sandbox is alive.
	Submitted struct {
		Pod   *v1.Pod
		Adopt bool
	}
	// Asked: the source of a pod that was admitted asks for other resources now, or for the same again.
	Asked struct{ Pod *v1.Pod }
	// Left: the pod has begun to terminate; Ended: by itself.
	Left struct {
		UID   types.UID
		Ended bool
	}
	// Gone: what the pod has is given back, also of one that only the store knows.
	Gone struct{ UID types.UID }
	// Answered: the pod's call brought this back. Stopping: the agent stops, and only releases go on.
	Answered struct {
		UID      types.UID
		Event    record.Event
		Stopping bool
	}
	// Tick: time passes. Due is acted upon, and each pod that waits for something that has happened since the
	// last Tick is decided on, in the order of arrival.
	Tick struct{}
)

// Effect is something that a step wants done for a pod.
type Effect struct {
	Pod *v1.Pod
	// Do is one of the types below, or one of record's: Ask, Inquire, Reread, Assign, DropRecord and Cancel
	// are about the pod's call, Say and SayReject about its outcome, and Forgo ends FollowNeeds.
	Do any
	// Until is when a call has to end; zero: it takes what it takes.
	Until time.Time
}

type (
	// FollowClaims has the pod's resource claims followed, until SayReject or Forget.
	FollowClaims struct{}
	// FollowNeeds has the objects of the API server followed that the pod needs.
	FollowNeeds struct{}
	// Ignored: the pod was submitted while it is being released, which changes nothing.
	Ignored struct{}
	// Explain keeps what explains a decision on the pod; Final: the decision counts.
	Explain struct {
		Verdict
		Final bool
	}
	// Preempted: the pod makes way for a critical one. Resource is the first that this one lacks.
	Preempted struct {
		Critical *v1.Pod
		Resource v1.ResourceName
	}
	// Unadvised: the plugin is not asked about the pod, since it did not answer about another one in time.
	Unadvised struct {
		Key allocation.AskKey
		Err error
	}
)

// Step takes an event, and returns what is to be done for it, in order. It has no goroutine, lock or file, and
// time passes in Clock only. Facts are asked for what they know.
func (l *Line) Step(e Event) []Effect {
	l.effects = nil
	switch e := e.(type) {
	case Recorded:
		l.recorded(e.State)
	case Seen:
		l.changes.look(l.View, e.View)
		l.View = e.View
	case Poked:
		l.changes.poked = true
	case Submitted:
		l.submitted(e)
	case Asked:
		if pod := l.Find(e.Pod.UID); pod != nil && !pod.State.Goes() {
			l.tell(pod, record.Asked{Demand: l.demandOf(e.Pod)})
		}
	case Left:
		if pod := l.Find(e.UID); pod != nil {
			l.tell(pod, record.Left{Ended: e.Ended})
		}
	case Gone:
		l.gone(e.UID)
	case Answered:
		l.answered(e)
	case Tick:
		l.tick()
	default:
		panic(fmt.Sprintf("admission: event %T", e))
	}
	return l.effects
}

// tell tells the pod's record of an event.
func (l *Line) tell(e *Entry, ev record.Event) {
	_, stored := l.Stored.Pods[e.Pod.UID]
	now := l.Clock()
	next, effects := e.Step(ev, record.Conditions{
		Now: now, Wait: l.Wait, BootID: l.BootID, View: l.View, Recorded: stored, Rereads: l.Rereads,
		Held: l.repeats.Until(record.OwnerOf(e.Pod), now), Slow: l.slow,
	})
	l.Set(e, next)
	if _, is := ev.(record.Left); is {
		l.changes.leaves = true
	}
	for _, f := range effects {
		l.do(e, f)
	}
}

// do carries out what the line does itself. Step returns the rest.
func (l *Line) do(e *Entry, f record.Effect) {
	owner := record.OwnerOf(e.Pod)
	switch f := f.(type) {
	case record.Free:
		by := decide.PodTerminated
		if f.Resized {
			by = decide.PodResized
		}
		l.changes.free(by)
		return
	case record.Adopt:
		s, r := l.Snapshot(l.View, l.Ledger), l.Request(e)
		l.tell(e, record.Decided{Decision: s.Adopt(&r, f.Err)})
		return
	case record.Preempt:
		l.preempt(f.Decision)
		return
	case record.Silence:
		l.silence(e, f)
		return
	case record.SayWait:
		l.want(e, record.Say{Outcome: decide.Wait, Reason: f.Reason, Message: l.naming(f.Decision)})
		return
	case record.Say:
		if f.Outcome == decide.Admit {
			l.repeats.Admitted(owner)
		}
	case record.SayReject:
		l.repeats.Rejected(owner, l.Clock())
	case record.Forget:
		l.remove(e)
	}
	l.want(e, f)
}

// want has something done for the pod. A pod's first call takes what it takes, later ones end at its deadline.
func (l *Line) want(e *Entry, f any) {
	var until time.Time
	if e.Tries.Retries > 0 && l.Wait > 0 {
		until = e.Tries.Since.Add(l.Wait)
	}
	l.effects = append(l.effects, Effect{Pod: e.Pod, Do: f, Until: until})
}

// recorded takes over what was recorded since.
func (l *Line) recorded(state allocation.State) {
	if l.follow(state) {
		l.changes.free(decide.PodTerminated)
	}
}

// submitted takes in a pod that is new or requests something else.
func (l *Line) submitted(in Submitted) {
	e := l.Find(in.Pod.UID)
	switch {
	case e == nil:
		held, stored := l.Stored.Pods[in.Pod.UID]
		if stored {
			l.stays(held)
		}
		e = &Entry{Record: record.Record{
			Demand: l.demandOf(in.Pod), Tries: record.Tries{Since: l.Clock()}, Runs: in.Adopt && !l.isVoid(held),
		}}
		l.followClaims(e)
		if e.Inquiry.Begun = l.inquires(e, stored); e.Inquiry.Begun {
			l.want(e, FollowNeeds{})
		}
		l.add(e)
	case e.State.Goes():
		l.effects = append(l.effects, Effect{Pod: in.Pod, Do: Ignored{}})
	default:
		l.followClaims(e)
		l.tell(e, record.Resubmitted{Demand: l.demandOf(in.Pod), Planned: l.demandOf(e.Planned(in.Pod))})
	}
}

// stays takes note that a pod is desired that only the store knew, and that pods took for one that will give
// back what it holds. They look for another place.
func (l *Line) stays(held allocation.Pod) {
	l.changes.stays = true
	has := allocation.HoldingsOf(held).With(allocation.Memory(nil))
	for _, o := range l.Order {
		if o.Claims() && allocation.HoldingsOf(o.Has.Pod).Overlaps(has) {
			l.Set(o, o.Displaced(true))
		}
	}
}

func (l *Line) followClaims(e *Entry) {
	if e.HasClaims {
		l.want(e, FollowClaims{})
	}
}

// inquires reports whether it is followed what a new pod needs. A pod that runs or was admitted before needs
// no question. If pods do not wait, they hold what they get while they cannot start, as under a kubelet.
func (l *Line) inquires(e *Entry, stored bool) bool {
	if !l.Inquires || l.Wait <= 0 || e.Runs || stored || e.Static {
		return false
	}
	h := l.View.Hardware
	return (allocation.View{CPUs: h.CPUs, Memory: h.Memory}).Needs(e.Pod)
}

// demandOf returns what the pod requests of the node as it is.
func (l *Line) demandOf(pod *v1.Pod) decide.Demand {
	return decide.DemandOf(pod, l.View.Hardware.CPUs, l.Rules)
}

// gone gives back what a pod has.
func (l *Line) gone(uid types.UID) {
	e := l.Find(uid)
	if e == nil {
		held, stored := l.Stored.Pods[uid]
		if !stored {
			held.UID = uid
			l.effects = append(l.effects, Effect{Pod: held.Reference(), Do: record.Forget{}})
			return
		}
		e = &Entry{Record: record.Record{
			Demand: l.demandOf(held.Reference()), Tries: record.Tries{Since: l.Clock()},
			State: record.Terminating, Has: record.Reservation{Pod: held},
		}}
		l.add(e)
	}
	l.tell(e, record.Gone{})
}

// answered tells the pod's record what its call brought back.
func (l *Line) answered(in Answered) {
	e := l.Find(in.UID)
	if e == nil || !e.State.UnderWay() || in.Stopping && !e.State.GoesNow() {
		return
	}
	if said, ok := in.Event.(record.Advised); ok {
		l.slow.Delete(said.Key.Resource)
		if l.Clock().Sub(e.Question.Asked) >= record.Patience {
			l.slow.Insert(said.Key.Resource)
		}
	}
	l.tell(e, in.Event)
}

// tick moves every pod on as far as it goes now, in the order of arrival. Another pod may wait for what that
// gives back, so tick goes on until nothing changes any more.
func (l *Line) tick() {
	now := l.Clock()
	for _, e := range slices.Clone(l.Order) {
		if e.Resizes() && e.Resize.Promised && e.Resize.Over(now, l.Wait) {
			l.tell(e, record.Changed{})
		}
		if due := e.Tries.Due; !due.IsZero() && !now.Before(due) {
			cause, words := l.words(e)
			l.tell(e, record.Late{Cause: cause, Words: words})
		}
	}
	for first := true; l.requeue(now) || first; first = false {
		NewPass(l, now).run()
	}
}

// Next returns when the next deadline or retry is due; ok is false if there is none.
func (l *Line) Next() (next time.Time, ok bool) {
	sooner := func(at time.Time) {
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	for _, e := range l.Order {
		switch {
		case e.IsEndless():
		case e.State == record.Waiting, e.State == record.Retrying, e.State == record.Deferred:
			sooner(e.Tries.Since.Add(l.Wait))
		}
		if !e.Tries.Due.IsZero() {
			sooner(e.Tries.Due)
		}
		if again := e.Resize.Retry; e.Resizes() && !again.IsZero() {
			sooner(again)
		}
		if e.Resizes() && e.Resize.Promised {
			sooner(e.Resize.Since.Add(l.Wait))
		}
	}
	return next, ok
}

// preempt ends the victims of a decision. They count as terminating from now on, so that none is chosen twice.
func (l *Line) preempt(d decide.Decision) {
	for _, uid := range d.Victims {
		if victim := l.Find(uid); victim != nil {
			l.tell(victim, record.Left{})
			l.want(victim, Preempted{Critical: d.Pod, Resource: d.Rejection.Short})
		}
	}
}

// silence keeps the pods in line from waiting for a plugin that did not answer about a pod in time.
func (l *Line) silence(about *Entry, f record.Silence) {
	resource := f.Key.Resource
	for _, o := range l.Order {
		if o.State != record.Behind || o.Least[resource] == 0 || o.Preferences.Silent.Has(resource) {
			continue
		}
		key := allocation.AskKey{Container: o.FirstWith(resource), Resource: resource}
		err := fmt.Errorf("asked about %s/%s it said: %w", about.Pod.Namespace, about.Pod.Name, f.Err)
		l.Set(o, o.Unadvised(key, err))
		l.want(o, Unadvised{Key: key, Err: err})
	}
}
