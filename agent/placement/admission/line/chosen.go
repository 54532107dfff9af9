package line

import (
	"maps"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// Devices that were chosen for a pod are no guess. Guesses of other pods, also of earlier ones, yield to
// them: a pod whose guess has such a device gets another device. If there is no other, that pod goes
// first, and the pod with the choice waits until the guess has become an assignment.

// chosenForOthers returns the devices of the pod's guess that were chosen for another pod and not for
// this one; nil: none.
func (e *Entry) chosenForOthers(chosen allocation.DeviceIDs) (out allocation.DeviceIDs) {
	if e.Guess == nil || len(chosen) == 0 {
		return nil
	}
	mine, has := e.Choices(), e.Guess.Devices()
	for name, ids := range chosen {
		if both := ids.Intersection(has[name]).Difference(mine[name]); both.Len() > 0 {
			if out == nil {
				out = allocation.DeviceIDs{}
			}
			out[name] = both
		}
	}
	return out
}

// withCertain returns the ledger with what a guess of the pod cannot change: those of its devices that
// were chosen for it, and what is recorded. A pod that does not guess is left out.
func (p *Pods) withCertain(e *Entry, l allocation.Ledger) allocation.Ledger {
	entry, known := p.Ledger.Get(e.Pod.UID)
	stored, recorded := p.Stored.Pods[e.Pod.UID]
	chosen := e.Choices()
	if !known || !e.Guesses() || len(chosen) == 0 && !recorded {
		return l.Without(e.Pod.UID)
	}
	keeps := allocation.TakenBy(stored)
	devices := allocation.DeviceIDs{}
	maps.Copy(devices, keeps.Devices())
	for name, ids := range chosen {
		devices[name] = devices[name].Union(ids.Intersection(entry.Assigned.Devices()[name]))
	}
	return l.With(e.Pod.UID, allocation.Entry{Standing: entry.Standing, Assigned: keeps.With(devices)})
}

// withoutGuesses removes from the ledger what other pods guess of the devices that were chosen for the pod.
func (p *Pass) withoutGuesses(l allocation.Ledger) allocation.Ledger {
	if len(p.chosen) == 0 {
		return l
	}
	for _, o := range p.pods.Order {
		entry, known := l.Get(o.Pod.UID)
		devices := o.chosenForOthers(p.chosen)
		if !known || devices == nil {
			continue
		}
		entry.Assigned = entry.Assigned.WithoutDevices(devices)
		l = l.With(o.Pod.UID, entry)
	}
	return l
}

// blockingGuess returns a pod whose guess has devices that were chosen for the pod to decide on, and which
// has no place without them; nil: none.
func (p *Pass) blockingGuess(d *decide.Decision) *Entry {
	if len(p.chosen) == 0 || d.Outcome != decide.Admit || d.Kind != decide.Planned {
		return nil
	}
	ledger := p.line.ledger(p).Without(p.request.In)
	var guesses []*Entry
	for _, o := range p.pods.Order {
		_, known := ledger.Get(o.Pod.UID)
		if known && !o.State.Goes() && o.chosenForOthers(p.chosen) != nil {
			guesses, ledger = append(guesses, o), ledger.Without(o.Pod.UID)
		}
	}
	s := p.Snapshot(ledger).With(*d)
	for _, o := range guesses {
		r := p.asks(o)
		other := s.Decide(&r)
		if other.Outcome != decide.Admit {
			return o
		}
		s = s.With(other)
	}
	return nil
}
