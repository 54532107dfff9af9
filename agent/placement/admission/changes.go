package admission

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// changes says what has happened since the pods that wait were looked at last.
type changes struct {
	// poked: anything may have changed that handlers look at.
	poked bool
	// freed: something was given back, held or claimed.
	freed bool
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

// look replaces the view, and takes in the differences to the last one. The first view is no change.
func (c *changes) look(view *decide.View, next decide.View) {
	before := *view
	*view = next
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
func (a *admitter) requeue(ctx context.Context, now time.Time) (found bool) {
	c := a.changes
	a.changes = changes{}
	w := waiters{changes: c, pods: a.pods, view: a.view}
	if c.freed || c.devices.Len() > 0 {
		w.free = decide.FreeIn(a.Snapshot(a.pods.Ledger))
	}
	if c.machine {
		found = a.recheck(ctx)
	}
	for _, e := range a.pods.Order {
		concerned, expired := w.concerned(e), e.Waited(now) >= a.cfg.Wait
		switch {
		case expired && (e.State == record.Retrying || e.State == record.Deferred) && !e.IsEndless():
			a.Tell(ctx, e, record.Overdue{})
		case concerned, expired && e.State == record.Waiting:
			a.Tell(ctx, e, record.Moved{})
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
func (a *admitter) recheck(ctx context.Context) (found bool) {
	for _, e := range a.pods.Order {
		if e.Runs || a.view.Sound(e.Pod, e.Has.Pod) {
			continue
		}
		switch e.State {
		case record.Queued, record.Waiting, record.PendingRelease, record.Retrying:
			a.Tell(ctx, e, record.Remade{})
			found = true
		}
	}
	return found
}

// waiters finds the pods that changes concern. It is asked about each in the order of arrival.
type waiters struct {
	changes
	pods *line.Pods
	view decide.View
	// free counts what no pod has; nil: no more than before. ahead sums the claims of earlier pods.
	free  *decide.Free
	ahead v1.ResourceList
}

// concerned reports whether the changes may change something for the pod.
func (w *waiters) concerned(e *line.Entry) bool {
	all := w.stays || w.machine || w.statusKnown
	switch e.State {
	case record.Waiting, record.PendingRelease:
		// To be asked of each of them, in order.
		fits := w.fits(e)
		if all || fits || w.claimsChanged(e) || e.Wants(w.devices) && !w.indifferent(e) {
			return true
		}
		nobody := e.Cause == decide.ReasonWaitResources &&
			w.pods.Ledger.Pods(allocation.Terminating) == 0
		return w.freed && (nobody || e.State == record.PendingRelease)
	case record.Behind:
		return all || !w.pods.IsBehind(e, w.view)
	case record.Retrying:
		return all || e.Wants(w.devices) || w.claimsChanged(e)
	case record.Deferred:
		return all || w.poked || w.freed
	case record.HeldBack:
		return all || w.freed || e.Wants(w.devices) || w.poked && e.Inquiry.Begun
	case record.Admitted:
		return (e.Wants(w.devices) || w.claimsChanged(e)) && e.IsShort()
	}
	return false
}

// fits reports whether the pod, which has a claim, may have a place.
func (w *waiters) fits(e *line.Entry) bool {
	if w.free == nil {
		return false
	}
	fits := w.free.MayHold(e.Demand, w.ahead)
	w.ahead = allocation.AddRequests(w.ahead, e.Requests)
	return fits
}

// indifferent reports whether other devices change nothing for a pod without a place: it waits for
// what terminating pods hold, and its claim is good.
func (w *waiters) indifferent(e *line.Entry) bool {
	own, _ := w.pods.Ledger.Get(e.Pod.UID)
	return e.Cause == decide.ReasonWaitResources && w.view.Healthy(own.Assigned.Devices())
}
