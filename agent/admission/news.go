package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/deviceplugin"
)

// view is what a round decides with, the same for all pods.
type view struct {
	hardware  machine.Hardware
	inventory deviceplugin.Inventory
}

// news is what has happened since the pods that wait were looked at last.
type news struct {
	// freed: something was given back, held or claimed.
	freed bool
	// stays: a pod that only the store knew of is desired, and will not give back what it holds.
	stays bool
	// machine: it is another one.
	machine bool
	// devices are the resources of which plugins say something else.
	devices sets.Set[string]
}

// look takes the view of this round. What is different from the last one is news.
func (q *Queue) look() {
	before := q.view
	q.view = view{q.cfg.Hardware(), q.cfg.Plugins.Inventory()}
	if before.hardware.Machine == nil {
		return // no pod was decided on before
	}
	q.news.machine = q.news.machine || q.view.hardware.Machine != before.hardware.Machine
	q.news.devices = q.news.devices.Union(
		differing(before.inventory.Resources, q.view.inventory.Resources))
}

// spread queues the pods that what has happened may concern, and reports whether there are any.
// Pods whose time is over are queued too, or rejected.
func (q *Queue) spread(now time.Time) (any bool) {
	n := q.news
	q.news = news{}
	var s *spare
	if n.freed || n.devices.Len() > 0 {
		s = q.spare()
	}
	if n.machine {
		q.recheck()
	}
	nobody := n.freed && !q.stakes.anyGoing()
	for _, e := range q.entries {
		if e.isShort() && e.wants(n.devices) {
			e.phase, any = queued, true
		}
		if e.phase != waiting || e.leaving {
			continue
		}
		vain := nobody && e.claimed && e.said.Reason == ReasonWaitResources
		any = q.stir(e, now, q.concerns(n, s, e) || vain) || any
	}
	return any
}

// isShort reports whether the pod runs, and a container of it that comes later could not be
// created.
func (e *entry) isShort() bool {
	return e.adopt && e.phase == admitted && !e.leaving && !e.reserved.IsEmpty() &&
		e.reserved.Incomplete(e.pod)
}

// concerns reports whether what has happened may change something for a pod that waits. It is asked
// in the order of arrival.
func (q *Queue) concerns(n news, s *spare, e *entry) bool {
	own := q.stakes.of[e.pod.UID].taken
	room := e.claimed && s != nil && s.mayHold(e, own)
	return n.stays || n.machine || room || e.brief && n.freed ||
		e.wants(n.devices) && !q.indifferent(e, own)
}

// recheck takes from the pods that wait what they would not be given on the machine as it is now,
// such as a thread of a core whose other thread has come online. They look for a place again in the
// order of arrival. What plugins answered goes too: Allocate is called again.
func (q *Queue) recheck() {
	for _, e := range q.entries {
		if !e.adopt && (e.phase == waiting || e.phase == queued) && !q.sound(e.reserved) {
			e.retryAt = time.Time{}
			q.hold(e, e.phase, grip{claimed: true})
		}
	}
}

// sound reports whether each container might be given these CPUs on the machine as it is now.
func (q *Queue) sound(p allocation.Pod) bool {
	cpus := q.view.hardware.CPUs
	for _, c := range p.Containers {
		if cpus != nil && !cpus.Whole(c.CPUs) {
			return false
		}
	}
	return true
}

// stir queues or rejects a pod that waits, if it is concerned or its time is over.
func (q *Queue) stir(e *entry, now time.Time, concerned bool) bool {
	expired := q.expired(e, now)
	switch {
	case e.claimed && (concerned || expired && !e.brief):
		e.phase = queued
	case e.claimed:
		return false
	case expired:
		q.reject(e, e.refusal)
	case concerned:
		e.phase, e.retryAt = queued, time.Time{}
	default:
		return false
	}
	return true
}

// indifferent reports whether other devices change nothing for a pod without room: it waits for
// what terminating pods hold, and its claim is good.
func (q *Queue) indifferent(e *entry, own allocation.Taken) bool {
	if !e.claimed || e.said.Reason != ReasonWaitResources {
		return false
	}
	for name, ids := range own.Devices {
		r := q.view.inventory.Resources[name]
		if !r.Connected {
			return false
		}
		for id := range ids {
			if d, found := r.Find(id); !found || !d.Healthy {
				return false
			}
		}
	}
	return true
}

// wants reports whether the pod requests any of these resources.
func (e *entry) wants(resources sets.Set[string]) bool {
	for name := range e.least {
		if resources.Has(name) {
			return true
		}
	}
	return false
}

// differing names the resources of which not both say the same, as far as plans look at it.
func differing(before, after map[string]deviceplugin.Resource) sets.Set[string] {
	out := sets.Set[string]{}
	for name, a := range after {
		if b, known := before[name]; !known || !sameOffer(a, b) {
			out.Insert(name)
		}
	}
	for name := range before {
		if _, known := after[name]; !known {
			out.Insert(name)
		}
	}
	return out
}

// sameOffer may say no for lists that say the same, but of which one was made anew.
func sameOffer(a, b deviceplugin.Resource) bool {
	return a.Connected == b.Connected && a.Problem == b.Problem && a.Preferred == b.Preferred &&
		len(a.Devices) == len(b.Devices) &&
		(len(a.Devices) == 0 || &a.Devices[0] == &b.Devices[0])
}
