package admission

import (
	"slices"
	"time"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/memory"
)

// refuse decides on a pod that has no place in the room now: it waits with a claim, or it is
// rejected. One whose claim is broken and has no other place takes what pods behind it have a claim
// to; that may be a plan.
func (q *Queue) refuse(e *entry, room allocation.Room, err error, t turn) (allocation.Plan, error) {
	if q.expired(e, t.now) {
		q.reject(e, prospects{now: room}.rejection(e.pod, err))
		return allocation.Plan{}, err
	}
	own := q.own(e)
	j := prospects{room, q.future(e, own)}.judge(e.pod, e.advice, err)
	if j.final && e.claimed {
		plan, insisted, ok := q.insist(e, own, t)
		if ok {
			return plan, nil
		}
		j = insisted
	}
	if j.final {
		q.reject(e, j.rejection)
		return allocation.Plan{}, err
	}
	// The message has numbers; that these go up and down is no news.
	same := e.claimed && e.said.Reason == j.reason && j.reason != ReasonWaitPlugin
	q.hold(e, waiting, grip{reserved: j.claim, claimed: true})
	e.counsel = counsel{}
	if !same {
		q.say(e, Wait, j.reason, j.message)
	}
	return allocation.Plan{}, err
}

// insist looks for a place or a claim as if nobody had come after the pod.
func (q *Queue) insist(e *entry, own holding, t turn) (plan allocation.Plan, j judgement, ok bool) {
	behind := q.behind(e)
	for _, o := range behind {
		q.stakes.put(o.pod.UID, nil)
	}
	room := q.present(e, own, t.ahead)
	plan, err := q.place(e, room)
	if err != nil {
		j = prospects{room, q.future(e, own)}.judge(e.pod, e.advice, err)
	}
	for _, o := range behind {
		q.account(o.pod.UID, o)
	}
	switch {
	case err == nil:
		displace(behind, plan.Pod, q.move)
	case !j.final:
		displace(behind, j.claim, q.move)
	}
	return plan, j, err == nil
}

// behind are the pods that came after e and have a claim.
func (q *Queue) behind(e *entry) []*entry {
	after := q.entries[slices.Index(q.entries, e)+1:]
	return slices.DeleteFunc(slices.Clone(after), func(o *entry) bool { return !o.claimed })
}

// displace takes the claims on any of this from these pods; they all look for a place again.
func displace(behind []*entry, by allocation.Pod, move func(*entry, phase, grip)) {
	for _, o := range behind {
		if o.phase != waiting {
			continue
		}
		o.retryAt = time.Time{}
		g := o.grip
		if overlap(g.reserved, by) {
			g.reserved = allocation.Pod{}
		}
		move(o, queued, g)
	}
}

// overlap tells whether both cannot be had, or in the case of memory of the same node, whether that
// may be so.
func overlap(a, b allocation.Pod) bool {
	one, other := allocation.TakenBy(a), allocation.TakenBy(b)
	if !one.CPUs.Intersection(other.CPUs).IsEmpty() {
		return true
	}
	for resource, ids := range one.Devices {
		if ids.HasAny(other.Devices[resource].UnsortedList()...) {
			return true
		}
	}
	return slices.ContainsFunc(one.Memory, func(a memory.Block) bool {
		return slices.ContainsFunc(other.Memory, func(b memory.Block) bool {
			return a.Resource == b.Resource && !a.Nodes.Intersect(b.Nodes).IsEmpty()
		})
	})
}
