package admission

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/explain"
)

// turn is when a pod is decided on.
type turn struct {
	now time.Time
	// ahead is what is only counted of the claims of those who came before it.
	ahead v1.ResourceList
	// at is its place in the order.
	at int
	// front leaves out the claims of those behind, freed the pods whose release is being recorded.
	front, freed *partial
}

// turn is that of the first pod.
func (q *Queue) turn(now time.Time) turn {
	return turn{
		now: now, ahead: v1.ResourceList{},
		front: &partial{queue: q, out: func(e *entry, passed bool) bool {
			return e.claimed && !passed
		}},
		freed: &partial{queue: q, out: func(e *entry, _ bool) bool { return e.goesNow() }},
	}
}

// attempt decides on one pod with what is known now.
func (q *Queue) attempt(ctx context.Context, e *entry, t turn) {
	own := q.own(e)
	if e.adopt && (!own.IsEmpty() && !own.Incomplete(e.pod) || !q.needsAssignment(e.pod)) {
		q.adopt(e, nil)
		return
	}
	if r := q.check(e); r != nil {
		q.reject(e, r)
		return
	}
	if e.leaving {
		e.phase = waiting // for its release
		return
	}
	room := q.present(e, own, t.ahead)
	if e.adopt {
		room.Keep = allocation.KeepAll
	}
	plan, err := q.place(e, room)
	defer func() { e.planned = nil }()
	if err != nil && !e.adopt {
		if q.reread(ctx, e, err) {
			return
		}
		plan, err = q.refuse(e, room, err, t)
	}
	switch {
	case err == nil:
		q.take(ctx, e, plan)
	case e.adopt:
		q.adopt(e, err)
	}
	for _, m := range e.facts.Merges {
		klog.FromContext(ctx).V(4).Info("Merged topology hints", "pod", klog.KObj(e.pod),
			"container", m.Container, "offers", m.Offers, "merged", m.Merged, "admit", m.Admitted)
	}
}

// check asks the handlers. What runs already has passed them.
func (q *Queue) check(e *entry) *allocation.Rejection {
	if e.adopt {
		return nil
	}
	for _, h := range q.cfg.Handlers {
		if r := h(e.pod); r != nil {
			return r
		}
	}
	return nil
}

// place plans in the room as it is now.
func (q *Queue) place(e *entry, room allocation.Room) (allocation.Plan, error) {
	began := time.Now()
	plan, err := room.Plan(e.pod, e.advice)
	for err == nil && plan.Ask != nil && e.silent.Has(plan.Ask.AskKey.Resource) {
		e.advise(plan.Ask.AskKey, nil)
		plan, err = room.Plan(e.pod, e.advice)
	}
	if len(e.advice) > 0 && err != nil {
		if without, none := unadvised(room, e.pod); none == nil {
			plan, err = without, nil
			e.ignored = append(e.ignored, "with what plugins prefer the pod has no place")
		}
	}
	if err != nil && e.claimed && room.Own.IsEmpty() {
		// What it has a claim to may be free as a whole.
		room.Own, room.Keep = e.reserved, allocation.KeepWhole
		if claimed, none := room.Plan(e.pod, e.advice); none == nil {
			plan, err = claimed, nil
		}
	}
	q.cfg.Planned(plan, err)
	e.tried = &Tried{Plan: plan, Err: err, Took: time.Since(began)}
	e.planned = &explain.Case{Room: room, Pod: e.pod, Plan: plan, Err: err}
	e.facts = e.planned.Explain()
	return plan, err
}

// unadvised plans as if no plugin had answered: what is preferred for one container may leave no
// place for the next.
func unadvised(room allocation.Room, pod *v1.Pod) (allocation.Plan, error) {
	none := allocation.Advice{}
	plan, err := room.Plan(pod, none)
	for err == nil && plan.Ask != nil {
		none[plan.Ask.AskKey] = nil
		plan, err = room.Plan(pod, none)
	}
	return plan, err
}

// take lets the pod have its plan, as far as it is one: advice may be wanted first, answers of
// plugins and the durable commit are.
func (q *Queue) take(ctx context.Context, e *entry, plan allocation.Plan) {
	switch {
	case plan.Ask != nil:
		// What the pod would get without advice is its own meanwhile, so that the pods behind
		// it do not get ahead. The advice may lead to other devices in the end.
		if len(plan.Pod.Containers) > 0 {
			q.hold(e, busy, grip{reserved: plan.Pod, tentative: true})
		}
		q.start(ctx, e, func(ctx context.Context) completion { return q.ask(ctx, e, *plan.Ask) })
	case plan.Pod.IsEmpty():
		q.hold(e, admitted, grip{})
		q.say(e, Admit, "", "")
	default:
		reserved := plan.Pod
		reserved.BootID = q.cfg.BootID
		q.hold(e, busy, grip{reserved: reserved})
		q.start(ctx, e, func(ctx context.Context) completion { return q.obtain(ctx, e, reserved) })
	}
}

// holding is an assignment that a pod has from before.
type holding struct{ allocation.Pod }

// voidUnder reports whether the plugins' answers were given under another boot.
func (h holding) voidUnder(bootID string) bool { return !h.IsEmpty() && h.BootID != bootID }

// stays leaves out the pods that will give back what they hold.
func stays(o *entry) bool { return !o.leaving && o.phase != releasing }

// own is what the pod holds: its reservation, else what the store has. After a reboot the
// intent is kept and the plugins' answers are not.
func (q *Queue) own(e *entry) holding {
	if len(e.reserved.Containers) > 0 && !e.tentative && !e.claimed {
		return holding{e.reserved}
	}
	h := holding{q.stored.Pods[e.pod.UID]}
	if h.voidUnder(q.cfg.BootID) {
		h.Containers = allocation.WithoutAnswers(h.Containers)
		e.adopt = false
	}
	return h
}

// needsAssignment reports whether the pod asks for anything that is assigned, not only counted.
func (q *Queue) needsAssignment(pod *v1.Pod) bool {
	hardware := q.view.hardware
	return allocation.View{CPUs: hardware.CPUs, Memory: hardware.Memory}.Needs(pod)
}

// room is what there is beside what others have taken.
func (q *Queue) room(own holding, taken allocation.Taken) allocation.Room {
	hardware := q.view.hardware
	return allocation.Room{
		View: allocation.View{
			Machine: hardware.Machine, CPUs: hardware.CPUs, Memory: hardware.Memory,
			Policy: q.cfg.Policy, Scope: q.cfg.Scope, Options: hardware.Options,
			Inventory: q.view.inventory, Taken: taken, Own: own.Pod,
		},
		Allocatable: hardware.Allocatable,
	}
}

// present is the room of a pod beside those others that have anything. What is only counted is of
// nothing in particular: it is for those who came first, so that of the claims only those ahead
// count. Claims are on what terminating pods give back, as far as that goes, so that of the two
// only the greater counts.
func (q *Queue) present(e *entry, own holding, ahead v1.ResourceList) allocation.Room {
	mine := q.stakes.of[e.pod.UID]
	room := q.room(own, q.stakes.all.Except(mine.taken))
	requests, sharers := q.stakes.others(mine)
	room.Others = []v1.ResourceList{requests[staying], greater(requests[going], ahead)}
	room.Sharing = sharers[staying]+sharers[claiming]+sharers[going] > 0
	return room
}

// future is the room when the terminating pods are gone. A claim is kept as long as it is good.
func (q *Queue) future(e *entry, own holding) allocation.Room {
	mine := q.stakes.of[e.pod.UID]
	requests, sharers := q.stakes.others(mine)
	if mine.standing == going {
		mine.taken = allocation.Taken{}
	}
	room := q.room(own, q.stakes.stay.Except(mine.taken))
	room.Others = []v1.ResourceList{requests[staying], requests[claiming]}
	room.Sharing = sharers[staying]+sharers[claiming] > 0
	if e.claimed && own.IsEmpty() {
		room.Own, room.Keep = e.reserved, allocation.KeepWhole
	}
	return room
}

func (q *Queue) reject(e *entry, r *allocation.Rejection) {
	q.letGo(e)
	e.phase = rejected // that it has nothing is known
	if e.tried != nil {
		e.tried.Err = r
	}
	q.say(e, Reject, r.Reason, r.Message)
}

// podOf is the little of a pod that the store remembers.
func podOf(held allocation.Pod) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = held.UID, held.Namespace, held.Name
	return pod
}
