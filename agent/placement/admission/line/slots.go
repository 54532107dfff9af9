package line

import (
	"maps"
	"slices"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// slots knows the pods that have slots or stand in line for one, as a pass goes on.
type slots struct {
	made bool
	// has holds, by resource, the pod that has the resource's slot; last the pod that wants the
	// resource and came last in the pass.
	has, last map[string]*Entry
	// asked is the last pod before of which the API server has yet to say whether it could start.
	asked *Entry
}

// look finds the pods that hold the slots, once in a pass.
func (l *slots) look(p *Pass) {
	if l.made {
		return
	}
	l.made, l.has, l.last = true, map[string]*Entry{}, map[string]*Entry{}
	for _, e := range p.Order {
		if e.HoldsSlot() {
			for _, name := range p.View.Contested(e.Demand) {
				if e.Holds(name) {
					l.has[name] = e
				}
			}
		}
	}
}

// note takes note that the pass has come past the pod.
func (l *slots) note(p *Pass, e *Entry) {
	if !e.Undecided() {
		return
	}
	l.look(p)
	if e.MayGiveWay() {
		l.asked = e
	}
	for _, name := range p.View.Contested(e.Demand) {
		if e.Holds(name) {
			l.last[name] = e
		}
	}
}

// holder returns the pod that holds the slot of one of the resources, or stands in line for it before the pod;
// nil: none.
func (l *slots) holder(p *Pass, resources []string) *Entry {
	l.look(p)
	for _, name := range resources {
		switch has, last := l.has[name], l.last[name]; {
		case has != nil && has.Pod.UID == p.request.In:
		case has != nil && has.HoldsSlot() && has.Holds(name):
			return has
		case last != nil && last.Undecided():
			return last
		}
	}
	return nil
}

// before has the pod stand in line if another pod's devices have to be known before the decision counts.
func (p *Pass) before(d *decide.Decision) (in record.Ranked, ok bool) {
	other, forSlot := p.first(d)
	if other == nil {
		return record.Ranked{}, false
	}
	in = record.Ranked{After: other.Pod.UID, ForSlot: forSlot}
	if d.Outcome == decide.Admit {
		in.Place = d.Case.Plan.Pod
	}
	return in, true
}

// first returns the pod whose devices have to be known first; nil: none. forSlot: it has to
// give up its slot.
func (p *Pass) first(d *decide.Decision) (other *Entry, forSlot bool) {
	if d.Kind == decide.Planned {
		if other := p.slots.holder(p, p.awaited(d)); other != nil {
			return other, true
		}
	}
	asked := p.slots.asked
	if d.Outcome == decide.Admit || asked == nil || !asked.MayGiveWay() {
		return nil, false
	}
	s := p.beside(p.withoutAsked.upTo(p.at, &p.Pods))
	switch without := s.Decide(&p.request); {
	case without.Outcome == decide.Admit,
		without.Outcome == decide.Wait && d.Outcome == decide.Reject:
		return asked, false
	}
	return nil, false
}

// awaited lists the resources whose slots count for the decision: those of which it chooses devices that a plugin
// may prefer others to, or all if the pod has no place.
func (p *Pass) awaited(d *decide.Decision) []string {
	if d.Outcome != decide.Admit {
		return slices.Sorted(maps.Keys(p.wanted))
	}
	had := allocation.HoldingsOf(p.request.Own).Devices()
	gets := allocation.HoldingsOf(d.Case.Plan.Pod).Devices()
	if d.Case.Plan.Ask != nil || slices.ContainsFunc(p.contested, func(name string) bool {
		return !had[name].IsSuperset(gets[name])
	}) {
		return p.contested
	}
	return nil
}
