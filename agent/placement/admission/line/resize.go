package line

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// resizes decides on the resizes of the pods in line.
type resizes struct{ *Line }

// decide decides on the resizes that are due, all of them if something has changed, by trigger. A resize takes neither
// what pods claim that came before it (after its time, of any), nor what a resize waits for that the kubelet's
// order puts before it.
func (l resizes) decide(changed bool, trigger decide.Trigger, now time.Time) {
	var pending []*Entry
	due := false
	for _, e := range l.Order {
		if e.Resizes() {
			pending = append(pending, e)
			due = due || changed || e.Resize.IsDue(now)
		}
	}
	if !due {
		return
	}
	slices.SortStableFunc(pending, func(a, b *Entry) int { return record.CompareResizes(&a.Record, &b.Record) })
	claims, ahead := l.claims(), v1.ResourceList{}
	for _, e := range pending {
		if changed || e.Resize.IsDue(now) {
			s := l.Snapshot(l.View, l.Ledger)
			since := e.Resize.Since.Add(-1) // of what came at the same time the resize goes first
			if e.Resize.Over(now, l.Wait) {
				since = now
			}
			s.Ahead, s.Growth = claims.to(since), ahead
			r := l.Request(e)
			d := s.Resize(&r, e.Resize.Wanted)
			d.Trigger = trigger
			l.tell(e, record.Sized{Resizing: d})
		}
		if e.Resize.Promised {
			ahead = allocation.AddRequests(ahead, e.Grows())
		}
	}
}

// promises lists amounts that are kept for those that came first.
type promises []promise

type promise struct {
	since  time.Time
	amount v1.ResourceList
}

// to sums the promises that were made until then.
func (p promises) to(at time.Time) (sum v1.ResourceList) {
	for _, one := range p {
		if !one.since.After(at) {
			sum = allocation.AddRequests(sum, one.amount)
		}
	}
	return sum
}

// promised lists what resizes wait for.
func (l resizes) promised() (out promises) {
	for _, e := range l.Order {
		if e.Resize.Promised && e.Resizes() {
			out = append(out, promise{e.Resize.Since, e.Grows()})
		}
	}
	return out
}

// claims lists what pods claim that wait.
func (l resizes) claims() (out promises) {
	for _, e := range l.Order {
		if e.Claims() {
			out = append(out, promise{e.Tries.Since, e.Requests})
		}
	}
	return out
}
