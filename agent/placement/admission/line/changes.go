package line

import (
	"cmp"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// changes says what has happened since the pods that wait were looked at last.
type changes struct {
	// poked: anything may have changed that handlers look at.
	poked bool
	// freed: something was given back, held or claimed; trigger says by what.
	freed   bool
	trigger decide.Trigger
	// leaves: a pod has begun to end, and resizes may have room when it is gone.
	leaves bool
	// stays: a pod that only the store knew of is desired, and will not give back what it holds.
	stays bool
	// statusKnown: the node's status is known now.
	statusKnown bool
	// machine: the hardware is another one.
	machine bool
	// devices names the resources whose plugins have another list, or of which the node's status has
	// another amount.
	devices sets.Set[string]
}

// free takes in that something was given back. Of several triggers the first counts.
func (c *changes) free(by decide.Trigger) { c.freed, c.trigger = true, cmp.Or(c.trigger, by) }

// look takes in the differences of two views. The first view is no change.
func (c *changes) look(before, next decide.View) {
	if before.Hardware.Machine == nil {
		return // no pod was decided on before
	}
	c.poked = c.poked || !next.State.Equal(before.State)
	c.machine = c.machine || next.Hardware.Machine != before.Hardware.Machine
	c.devices = c.devices.Union(decide.Differing(before.Inventory, next.Inventory))
	advertised, known := decide.Advertises(before, next)
	c.devices, c.statusKnown = c.devices.Union(advertised), c.statusKnown || known
}

// requeue queues the pods that changes may concern, and reports whether there are any. It also
// queues or rejects those whose time is over.
func (l *Line) requeue(now time.Time) (found bool) {
	w := waiters{changes: l.changes, line: l}
	l.changes = changes{}
	if w.freed || w.devices.Len() > 0 {
		w.free = decide.FreeIn(l.Snapshot(l.View, l.Ledger))
	}
	if w.machine {
		found = l.recheck()
	}
	changed := w.freed || w.machine || w.leaves
	resizes{l}.decide(changed, cmp.Or(w.trigger, decide.Periodic), now)
	for _, e := range l.Order {
		concerned, expired := w.concerned(e), e.Waited(now) >= l.Wait
		switch {
		case expired && (e.State == record.Retrying || e.State == record.Deferred) && !e.IsEndless():
			l.tell(e, record.Overdue{})
		case concerned, expired && e.State == record.Waiting:
			l.tell(e, record.Moved{})
		default:
			continue
		}
		found = true
	}
	return found
}

// recheck takes from waiting pods what the machine would no longer give them, such as a thread of a
// core whose other thread has come online. They look for a place again in the order of arrival, and
// Allocate is called again. It reports whether there are such pods.
func (l *Line) recheck() (found bool) {
	for _, e := range l.Order {
		if e.Runs || l.View.Sound(e.Pod, e.Has.Pod) {
			continue
		}
		switch e.State {
		case record.Queued, record.Waiting, record.PendingRelease, record.Retrying:
			l.tell(e, record.Remade{})
			found = true
		}
	}
	return found
}

// waiters finds the pods that changes concern. It is asked about each in the order of arrival.
type waiters struct {
	changes
	line *Line
	// free counts what no pod has; nil: no more than before. ahead sums the claims of earlier pods.
	free  *decide.Free
	ahead v1.ResourceList
}

// concerned reports whether the changes may change something for the pod.
func (w *waiters) concerned(e *Entry) bool {
	all := w.stays || w.machine || w.statusKnown
	switch e.State {
	case record.Waiting, record.PendingRelease:
		// To be asked of each of them, in order.
		fits := w.fits(e)
		if all || fits || w.claimsChanged(e) || e.Wants(w.devices) && !w.indifferent(e) {
			return true
		}
		nobody := e.Cause == decide.ForResources &&
			w.line.Ledger.Pods(allocation.Terminating) == 0
		return w.freed && (nobody || e.State == record.PendingRelease)
	case record.Behind:
		return all || !w.line.IsBehind(e, w.line.View)
	case record.Retrying:
		return all || e.Wants(w.devices) || w.claimsChanged(e)
	case record.Deferred:
		return all || w.poked || w.freed
	case record.HeldBack:
		return all || w.freed && !e.Tries.Refused || e.Wants(w.devices) || w.poked && e.Inquiry.Begun
	case record.Admitted:
		return (e.Wants(w.devices) || w.claimsChanged(e)) && e.IsShort()
	}
	return false
}

// fits reports whether the pod, which has a claim, may have a place.
func (w *waiters) fits(e *Entry) bool {
	if w.free == nil {
		return false
	}
	fits := w.free.MayHold(e.Demand, w.ahead)
	w.ahead = allocation.AddRequests(w.ahead, e.Requests)
	return fits
}

// indifferent reports whether other devices change nothing for a pod without a place: it waits for
// what terminating pods hold, and its claim is good.
func (w *waiters) indifferent(e *Entry) bool {
	own, _ := w.line.Ledger.Get(e.Pod.UID)
	return e.Cause == decide.ForResources && w.line.View.Healthy(own.Assigned.Devices())
}

// claimsChanged reports whether the pod's claims are others than when it was decided on, or lack
// something else.
func (w *waiters) claimsChanged(e *Entry) bool {
	return w.poked && e.HasClaims && !reflect.DeepEqual(w.line.ClaimsOf(e.Pod), e.Uses)
}
