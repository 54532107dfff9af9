package admission

import (
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology/memory"
)

// refuse decides on a pod that has no place in the room now: it waits with a claim, or it is
// rejected. One whose claim is broken and has no other place takes what pods behind it have a claim
// to; that may be a plan.
func (q *Queue) refuse(e *entry, room allocation.Room, err error, t turn) (allocation.Plan, error) {
	own := q.own(e)
	if q.expired(e, t.now) {
		if claim, ok := q.soon(e, own, t); ok {
			q.hold(e, waiting, grip{reserved: claim, claimed: true, brief: true})
			e.counsel = counsel{}
			return allocation.Plan{}, err
		}
		q.reject(e, prospects{now: room}.rejection(e.pod, err))
		return allocation.Plan{}, err
	}
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
		q.say(e, Wait, j.reason, q.naming(j))
	}
	return allocation.Plan{}, err
}

// soon is what a pod that may not wait gets as soon as the releases that are being recorded at this
// moment are. The kubelet takes devices back in memory, as soon as a pod is no longer active: to it
// they are free.
func (q *Queue) soon(e *entry, own holding, t turn) (claim allocation.Pod, ok bool) {
	if q.cfg.Wait > 0 || !slices.ContainsFunc(q.entries, (*entry).goesNow) {
		return allocation.Pod{}, false
	}
	all := q.stakes
	q.stakes = t.freed.upTo(t.at)
	room := q.present(e, own, t.ahead)
	q.stakes = all
	room.Inventory, _ = withResources(room.Inventory, e.pod, func(r *deviceplugin.Resource) bool {
		r.Preferred = false // a claim is chosen without asking
		return true
	})
	plan, err := room.Plan(e.pod, e.advice)
	return plan.Pod, err == nil
}

// naming is the message of a pod that waits, with the names of the pods that are gone and hold some
// of its claim until their release is recorded.
func (q *Queue) naming(j judgement) string {
	if j.reason != ReasonWaitResources {
		return j.message
	}
	var names []string
	for _, o := range q.entries {
		if !o.goesNow() {
			continue
		}
		held := q.stakes.of[o.pod.UID].taken
		if j.claim.IsEmpty() || overlapping(held, allocation.TakenBy(j.claim)) {
			names = append(names, klog.KObj(o.pod).String())
		}
	}
	if len(names) == 0 {
		return j.message
	}
	return j.message + "; being released: " + strings.Join(names[:min(len(names), 3)], ", ")
}

// insist looks for a place or a claim as if nobody had come after the pod.
func (q *Queue) insist(e *entry, own holding, t turn) (plan allocation.Plan, j judgement, ok bool) {
	all := q.stakes
	q.stakes = t.front.upTo(t.at)
	room := q.present(e, own, t.ahead)
	plan, err := q.place(e, room)
	if err != nil {
		j = prospects{room, q.future(e, own)}.judge(e.pod, e.advice, err)
	}
	q.stakes = all
	switch {
	case err == nil:
		t.front.displace(plan.Pod)
	case !j.final:
		t.front.displace(j.claim)
	}
	return plan, j, err == nil
}

// overlap reports whether both cannot be had, or in the case of memory of the same node, whether
// that may be so.
func overlap(a, b allocation.Pod) bool {
	return overlapping(allocation.TakenBy(a), allocation.TakenBy(b))
}

func overlapping(one, other allocation.Taken) bool {
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
