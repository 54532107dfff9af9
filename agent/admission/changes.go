package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
)

// changes are what has happened since the pods that wait were looked at last. What was given back
// is in pods.freed.
type changes struct {
	// poked: anything may have changed that handlers look at.
	poked bool
	// stays: a pod that only the store knew of is desired, and will not give back what it holds.
	stays bool
	// machine: it is another one.
	machine bool
	// devices are the resources of which plugins say something else.
	devices sets.Set[string]
}

// look replaces the view. What is different is a change, but for the first view.
func (c *changes) look(view *view, next view) {
	before := *view
	*view = next
	if before.hardware.Machine == nil {
		return // no pod was decided on before
	}
	c.machine = c.machine || next.hardware.Machine != before.hardware.Machine
	c.devices = c.devices.Union(
		differing(before.inventory.Resources, next.inventory.Resources))
}

// differing names the resources of which not both say the same, as far as plans look at it.
func differing(before, after map[string]deviceplugin.Resource) sets.Set[string] {
	out := sets.Set[string]{}
	for name, a := range after {
		b, known := before[name]
		if !known || a.Connected != b.Connected || a.Problem != b.Problem ||
			a.Preferred != b.Preferred || a.Generation != b.Generation {
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

// requeue queues the pods that what has happened may concern, and reports whether there are any.
// Pods whose time is over are queued too, or rejected.
func (q *Queue) requeue(now time.Time) (any bool) {
	c, freed := q.changes, q.pods.freed
	q.changes, q.pods.freed = changes{}, false
	var f *free
	if freed || c.devices.Len() > 0 {
		f = q.free()
	}
	if c.machine {
		q.recheck()
	}
	nobody := freed && q.pods.ledger.Pods(allocation.Goes) == 0
	for _, e := range q.pods.order {
		concerned := c.stays || c.machine
		expired := q.expired(e, now)
		switch e.state {
		case admitted:
			concerned, expired = e.isShort() && e.wants(c.devices), false
		case waiting:
			concerned = q.mayHelp(c, f, e) || concerned ||
				nobody && e.told.last.Reason == ReasonWaitResources
		case brief:
			concerned, expired = q.mayHelp(c, f, e) || concerned || freed, false
		case retrying:
			concerned = concerned || e.wants(c.devices)
		case deferred:
			concerned = concerned || c.poked
		default:
			continue
		}
		switch {
		case expired && (e.state == retrying || e.state == deferred):
			q.reject(e, e.tries.refusal)
		case expired || concerned:
			q.pods.move(e, transition(e.state, change), e.has)
		default:
			continue
		}
		any = true
	}
	return any
}

// mayHelp reports whether what has happened may give a place to a pod that has a claim. It is asked
// in the order of arrival.
func (q *Queue) mayHelp(c changes, f *free, e *entry) bool {
	return f != nil && f.mayHold(e) || e.wants(c.devices) && !q.indifferent(e)
}

// recheck takes from the pods that wait what they would not be given on the machine as it is now,
// such as a thread of a core whose other thread has come online. They look for a place again in the
// order of arrival. What plugins answered goes too: Allocate is called again.
func (q *Queue) recheck() {
	for _, e := range q.pods.order {
		if e.runs || q.sound(e.has.pod) {
			continue
		}
		switch e.state {
		case queued, waiting, brief, retrying:
			q.pods.give(e, queued, reservation{kind: claim})
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

// indifferent reports whether other devices change nothing for a pod without room: it waits for
// what terminating pods hold, and its claim is good.
func (q *Queue) indifferent(e *entry) bool {
	if e.told.last.Reason != ReasonWaitResources {
		return false
	}
	own, _ := q.pods.ledger.Get(e.pod.UID)
	for name, ids := range own.Assigned.Devices {
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
