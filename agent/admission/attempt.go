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
	"github.com/numalet/numalet/agent/node"
)

// attempt decides on one pod with what is known now.
func (q *Queue) attempt(ctx context.Context, e *entry, now time.Time) {
	own := q.own(e)
	if e.adopt && !own.voidUnder(q.cfg.BootID) && (!own.IsEmpty() || !q.needsAssignment(e.pod)) {
		e.phase, e.reserved = admitted, own.Pod
		q.say(e, Admit, "", "")
		return
	}
	for _, h := range q.cfg.Handlers {
		if r := h(e.pod); r != nil {
			q.reject(e, r)
			return
		}
	}
	began := time.Now()
	room := q.room(e, own, everybody)
	plan, err := room.Plan(e.pod, e.advice)
	q.cfg.Planned(plan, err, time.Since(began))
	e.planned = &explain.Case{Room: room, Pod: e.pod, Plan: plan, Err: err}
	defer func() { e.planned = nil }()
	e.facts = e.planned.Explain()
	switch {
	case err != nil:
		q.refuse(e, own, err, now)
	case plan.Ask != nil:
		// What the pod would get without advice is its own meanwhile, so that the pods behind
		// it do not get ahead. The advice may lead to other devices in the end.
		if len(plan.Pod.Containers) > 0 {
			e.reserved, e.tentative = plan.Pod, true
		}
		q.start(ctx, e, func(ctx context.Context) completion { return q.ask(ctx, e, *plan.Ask) })
	case plan.Pod.IsEmpty():
		e.phase = admitted
		q.say(e, Admit, "", "")
	default:
		reserved := plan.Pod
		reserved.BootID = q.cfg.BootID
		e.reserved, e.tentative = reserved, false
		q.start(ctx, e, func(ctx context.Context) completion { return q.obtain(ctx, e, reserved) })
	}
	for _, m := range e.facts.Merges {
		klog.FromContext(ctx).V(4).Info("Merged topology hints", "pod", klog.KObj(e.pod),
			"container", m.Container, "offers", m.Offers, "merged", m.Merged, "admit", m.Admitted)
	}
}

// holding is an assignment that a pod has from before.
type holding struct{ allocation.Pod }

// voidUnder tells whether the plugins' answers were given under another boot.
func (h holding) voidUnder(bootID string) bool { return !h.IsEmpty() && h.BootID != bootID }

// everybody counts every other pod. The functions that say which pods count are asked with nil
// about pods that only the store knows: those from before a restart that no source has desired
// since. They may be desired yet, or be removed.
func everybody(*entry) bool { return true }

// stays leaves out the pods that will give back what they hold, or may.
func stays(o *entry) bool { return o != nil && !o.leaving && o.phase != releasing }

// own is what the pod holds: its reservation, else what the store has. After a reboot the
// intent is kept and the plugins' answers are not.
func (q *Queue) own(e *entry) holding {
	if len(e.reserved.Containers) > 0 && !e.tentative {
		return holding{e.reserved}
	}
	h := holding{q.cfg.Store.State().Pods[e.pod.UID]}
	if h.voidUnder(q.cfg.BootID) {
		h.Containers = withoutAnswers(h.Containers)
		e.adopt = false
	}
	return h
}

func withoutAnswers(containers map[string]allocation.Container) map[string]allocation.Container {
	out := make(map[string]allocation.Container, len(containers))
	for name, c := range containers {
		c.Devices = slices.Clone(c.Devices)
		for i := range c.Devices {
			c.Devices[i].Answer = nil
		}
		out[name] = c
	}
	return out
}

// needsAssignment tells whether the pod asks for anything that is assigned, not only counted.
func (q *Queue) needsAssignment(pod *v1.Pod) bool {
	return allocation.Needs(pod, q.cfg.CPUs != nil)
}

// plan places the pod beside those others that count, within the node's capacity.
func (q *Queue) plan(e *entry, own holding, advice allocation.Advice, counts func(*entry) bool) (
	allocation.Plan, error) {
	return q.room(e, own, counts).Plan(e.pod, advice)
}

// room is what those others leave that count.
func (q *Queue) room(e *entry, own holding, counts func(*entry) bool) allocation.Room {
	room := allocation.Room{
		View: allocation.View{
			Machine: q.cfg.Machine, CPUs: q.cfg.CPUs, Policy: q.cfg.Policy, Scope: q.cfg.Scope,
			Options:   q.cfg.Options,
			Inventory: q.cfg.Plugins.Inventory(),
			Taken:     allocation.TakenBy(q.held(e, counts)...),
			Own:       own.Pod,
		},
		Allocatable: q.cfg.Allocatable,
	}
	for _, o := range q.entries {
		if o != e && o.holds() && counts(o) {
			room.Others = append(room.Others, o.requests)
			room.Sharing = room.Sharing || o.shares
		}
	}
	return room
}

// holds tells whether the pod's requests count against the node.
func (e *entry) holds() bool {
	return e.phase == admitted || e.phase == releasing || e.phase == busy || e.isReserved()
}

func (e *entry) isReserved() bool { return len(e.reserved.Containers) > 0 && e.phase != rejected }

// held is what all other pods hold: what the store has and what is reserved.
func (q *Queue) held(e *entry, counts func(*entry) bool) []allocation.Pod {
	stored := q.cfg.Store.State().Pods
	known := map[types.UID]bool{e.pod.UID: true}
	var out []allocation.Pod
	for _, o := range q.entries {
		if o == e {
			continue
		}
		known[o.pod.UID] = true
		if !counts(o) {
			continue
		}
		if o.isReserved() {
			out = append(out, o.reserved)
		}
		if p, ok := stored[o.pod.UID]; ok {
			out = append(out, p)
		}
	}
	for uid, p := range stored {
		if !known[uid] && counts(nil) {
			out = append(out, p)
		}
	}
	return out
}

// refuse turns a plan's error into waiting or rejection.
func (q *Queue) refuse(e *entry, own holding, err error, now time.Time) {
	reason, rejection := ReasonWaitResources, (*allocation.Rejection)(nil)
	var unready *allocation.Unready
	switch {
	case errors.As(err, &unready):
		reason, rejection = ReasonWaitPlugin, unreadyRejection(unready, e.pod)
	case errors.As(err, &rejection):
		_, later := q.plan(e, own, e.advice, stays)
		switch {
		case errors.As(later, &unready): // the plugin is missing beside what terminating pods hold
			err, reason, rejection = later, ReasonWaitPlugin, unreadyRejection(unready, e.pod)
		case later != nil:
			q.reject(e, rejection)
			return
		default:
			err = fmt.Errorf("%s; pods that are terminating hold what is missing", rejection.Message)
		}
	default:
		rejection = &allocation.Rejection{Reason: allocation.ReasonUnexpected, Message: err.Error()}
		q.reject(e, rejection)
		return
	}
	if q.expired(e, now) {
		q.reject(e, rejection)
		return
	}
	e.phase = waiting
	q.say(e, Wait, reason, err.Error())
}

func (q *Queue) reject(e *entry, r *allocation.Rejection) {
	e.phase, e.reserved = rejected, allocation.Pod{}
	q.say(e, Reject, r.Reason, r.Message)
}

// unreadyRejection is what the kubelet says of a pod whose plugin is not there.
func unreadyRejection(u *allocation.Unready, pod *v1.Pod) *allocation.Rejection {
	if u.Known {
		return &allocation.Rejection{
			Reason: allocation.ReasonUnexpected,
			Message: fmt.Sprintf("Allocate failed due to no healthy devices present; cannot "+
				"allocate unhealthy devices %s, which is unexpected", u.Resource),
		}
	}
	name := v1.ResourceName(u.Resource)
	wanted := node.Requests(pod)[name]
	short := node.Shortage{Resource: name, Requested: wanted.Value()}
	return &allocation.Rejection{Reason: short.Reason(), Message: short.Message()}
}

// podOf is the little of a pod that the store remembers.
func podOf(held allocation.Pod) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = held.UID, held.Namespace, held.Name
	return pod
}
