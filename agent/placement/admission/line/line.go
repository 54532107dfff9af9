package line

import (
	"slices"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// line knows the pods that stand in line, as a pass goes on.
type line struct {
	made bool
	// guessed: there were guesses at the beginning of the pass.
	guessed bool
	// slots holds, by resource, the pod that has the resource's slot; last the pod that wants the
	// resource and came last in the pass.
	slots, last map[string]*Entry
	// guess is the last pod before with a guess.
	guess *Entry
	// sure leaves out nothing but the guesses of later pods.
	sure partial
}

// look finds the pods that hold the slots, once in a pass.
func (l *line) look(p *Pass) {
	if l.made {
		return
	}
	l.made, l.slots, l.last = true, map[string]*Entry{}, map[string]*Entry{}
	for _, e := range p.pods.Order {
		l.guessed = l.guessed || e.Guesses()
		if e.HoldsSlot() {
			for _, name := range p.View.Contested(e.Demand) {
				if e.Holds(name) {
					l.slots[name] = e
				}
			}
		}
	}
}

// ledger returns the ledger to decide with: without the guesses of later pods.
func (l *line) ledger(p *Pass) allocation.Ledger {
	l.look(p)
	if !l.guessed {
		return p.pods.Ledger
	}
	return l.sure.upTo(p.at, p.pods)
}

// note takes note that the pass has come past the pod.
func (l *line) note(p *Pass, e *Entry) {
	if !e.Undecided() {
		return
	}
	l.look(p)
	l.guess = e
	for _, name := range p.View.Contested(e.Demand) {
		if e.Holds(name) {
			l.last[name] = e
		}
	}
}

// holder returns the pod that holds a slot that the pod wants, or stands in line before it; nil:
// none.
func (l *line) holder(p *Pass) *Entry {
	l.look(p)
	for _, name := range p.contested {
		switch has, last := l.slots[name], l.last[name]; {
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
	if d.Outcome == decide.Admit && other.chosenForOthers(p.chosen) == nil {
		in.Guess = d.Case.Plan.Pod
	}
	return in, true
}

// first returns the pod whose devices have to be known first; nil: none. forSlot: it has to
// give up its slot.
func (p *Pass) first(d *decide.Decision) (other *Entry, forSlot bool) {
	if d.Kind == decide.Planned && p.chooses(d) {
		if other := p.line.holder(p); other != nil {
			return other, true
		}
	}
	if other := p.blockingGuess(d); other != nil {
		return other, false
	}
	guess := p.line.guess
	if d.Outcome == decide.Admit || guess == nil || !guess.Undecided() {
		return nil, false
	}
	s := p.beside(p.pods.Certain)
	switch certain := s.Decide(&p.request); {
	case certain.Outcome == decide.Admit,
		certain.Outcome == decide.Wait && d.Outcome == decide.Reject:
		return guess, false
	}
	return nil, false
}

// chooses reports whether the decision chooses contested devices for the pod, or finds no place for
// one that wants such.
func (p *Pass) chooses(d *decide.Decision) bool {
	if d.Outcome != decide.Admit || len(p.contested) == 0 {
		return len(p.contested) > 0
	}
	had := allocation.TakenBy(p.request.Own).Devices()
	gets := allocation.TakenBy(d.Case.Plan.Pod).Devices()
	return d.Case.Plan.Ask != nil || slices.ContainsFunc(p.contested, func(name string) bool {
		return !had[name].IsSuperset(gets[name])
	})
}
