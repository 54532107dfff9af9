package line

import (
	"slices"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// line knows who stands in line, as a pass goes on.
type line struct {
	made bool
	// guessed: there were guesses at the beginning of the pass.
	guessed bool
	// turns holds, by resource, the pod that has the turn; last the pod that wants the resource and came
	// last in the pass.
	turns, last map[string]*Entry
	// guess is the last pod before with a guess.
	guess *Entry
	// sure leaves out nothing but the guesses of later pods.
	sure partial
}

// look finds who has the turn, once in a pass.
func (l *line) look(p *Pass) {
	if l.made {
		return
	}
	l.made, l.turns, l.last = true, map[string]*Entry{}, map[string]*Entry{}
	for _, e := range p.pods.Order {
		l.guessed = l.guessed || e.Guesses()
		if e.HasTurn() {
			for _, name := range p.View.Contested(e.Demand) {
				if e.Holds(name) {
					l.turns[name] = e
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

// note takes note that the pod had its turn in the pass.
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

// holder returns the pod that has the turn for what the pod wants, or stands in line before it; nil:
// none.
func (l *line) holder(p *Pass) *Entry {
	l.look(p)
	for _, name := range p.contested {
		switch has, last := l.turns[name], l.last[name]; {
		case has != nil && has.Pod.UID == p.request.In:
		case has != nil && has.HasTurn() && has.Holds(name):
			return has
		case last != nil && last.Undecided():
			return last
		}
	}
	return nil
}

// before has the pod stand in line if another pod's devices have to be known before the decision counts.
func (p *Pass) before(d *decide.Decision) (in record.Ranked, ok bool) {
	other, turn := p.first(d)
	if other == nil {
		return record.Ranked{}, false
	}
	in = record.Ranked{After: other.Pod.UID, Turn: turn}
	if d.Outcome == decide.Admit && other.yields(p.chosen) == nil {
		in.Guess = d.Case.Plan.Pod
	}
	return in, true
}

// first returns the pod whose devices have to be known first; nil: none. turn: its turn has to end.
func (p *Pass) first(d *decide.Decision) (other *Entry, turn bool) {
	if d.Kind == decide.Planned && p.chooses(d) {
		if other := p.line.holder(p); other != nil {
			return other, true
		}
	}
	if other := p.unyielding(d); other != nil {
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
