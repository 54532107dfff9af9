package admission

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Plugins are asked which devices they prefer for one pod after the other, where several want
// devices of one resource: while a pod is asked about, what it would get otherwise is a guess, and
// what is free for the next pod is known once that has become a choice. A pod has the turn for all
// the resources that it wants of plugins with preferences, from the first question to its place. The
// others stand in line, in the order of arrival, and have a guess too, so that those who come later
// and want other things do not get ahead of them.
//
// A guess is not counted for those who came before, and nobody is turned away for it: who has no
// place beside it, and one without it, waits until it is settled.

// line is who stands in line, as a pass through the pods goes on.
type line struct {
	made bool
	// guessed: there are guesses at the beginning of the pass.
	guessed bool
	// turns are the pods that have the turn, by resource; last those that want the resource and whose
	// turn in the pass has come.
	turns, last map[string]*entry
	// guess is the last of those before with a guess.
	guess *entry
	// sure is the ledger without the guesses of those behind, certain the one without any.
	sure, certain partial
}

func newLine() line {
	guessed := func(_ *pods, e *entry, passed bool) bool { return e.guesses() && !passed }
	return line{
		sure:    partial{out: guessed},
		certain: partial{out: func(_ *pods, e *entry, _ bool) bool { return e.guesses() }},
	}
}

// guesses reports whether what the pod has may become something else once plugins have answered.
func (e *entry) guesses() bool { return e.has.kind == tentative }

// unsettled reports whether the pod is asked about or stands in line.
func (e *entry) unsettled() bool { return e.hasTurn() || e.state == behind }

// hasTurn reports whether a plugin is asked about the pod, or has just answered.
func (e *entry) hasTurn() bool {
	switch e.state {
	case asking:
		return true
	case queued, rereading:
		return len(e.preferences.advice) > 0 && e.has.kind != assigned
	case finishing, canceling:
		return e.has.kind != assigned
	}
	return false
}

// contested are the resources of the pod of which plugins have a preference.
func (a *admitter) contested(e *entry) (out []string) {
	for name := range e.least {
		if r := a.view.inventory.Resources[name]; r.Connected && r.Options.Preferred {
			out = append(out, name)
		}
	}
	return out
}

// look finds who has the turn, once in a pass.
func (l *line) look(a *admitter) {
	if l.made {
		return
	}
	l.made, l.turns, l.last = true, map[string]*entry{}, map[string]*entry{}
	for _, e := range a.pods.order {
		l.guessed = l.guessed || e.guesses()
		if e.hasTurn() {
			for _, name := range a.contested(e) {
				l.turns[name] = e
			}
		}
	}
}

// ledger is that in which the pod is decided on whose turn it is in the pass: without the guesses of
// those behind it.
func (l *line) ledger(a *admitter, at int) allocation.Ledger {
	l.look(a)
	if !l.guessed {
		return a.pods.ledger
	}
	return l.sure.upTo(at, a.pods)
}

// pass takes in that the turn in the pass was the pod's.
func (l *line) pass(a *admitter, e *entry) {
	if !e.unsettled() {
		return
	}
	l.look(a)
	l.guess = e
	for _, name := range a.contested(e) {
		l.last[name] = e
	}
}

// holder is the pod that has the turn for what the pod wants, or stands in line for it before it.
func (l *line) holder(a *admitter, e *entry) *entry {
	l.look(a)
	for _, name := range a.contested(e) {
		switch has, last := l.turns[name], l.last[name]; {
		case has == e:
		case has != nil && has.hasTurn():
			return has
		case last != nil && last.unsettled():
			return last
		}
	}
	return nil
}

// before is the pod of which has to be known what it gets before the decision counts; nil: none.
func (a *admitter) before(e *entry, d *Decision, t *turn) *entry {
	if d.kind == planned && a.chooses(e, d) {
		if other := t.line.holder(a, e); other != nil {
			return other
		}
	}
	guess := t.line.guess
	if d.Outcome == Admit || guess == nil || !guess.unsettled() {
		return nil
	}
	s, r := a.cfg.snapshot(a.view, t.line.certain.upTo(t.at, a.pods)), a.pods.request(e)
	s.ahead, s.patient = t.ahead, !a.expired(e, t.now)
	switch certain := decide(&s, &r); {
	case certain.Outcome == Admit, certain.Outcome == Wait && d.Outcome == Reject:
		return guess
	}
	return nil
}

// chooses reports whether contested devices are chosen for the pod, or it has no place and wants
// such.
func (a *admitter) chooses(e *entry, d *Decision) bool {
	names := a.contested(e)
	if d.Outcome != Admit || len(names) == 0 {
		return len(names) > 0
	}
	had := allocation.TakenBy(a.pods.own(e)).Devices
	gets := allocation.TakenBy(d.Case.Plan.Pod).Devices
	return d.Case.Plan.Ask != nil || slices.ContainsFunc(names, func(name string) bool {
		return !had[name].IsSuperset(gets[name])
	})
}

// standBehind has the pod wait until it is known what another one gets.
func (a *admitter) standBehind(e, other *entry, d *Decision) {
	has := e.has
	if !e.claims() && (has.kind != assigned || !e.isReserved()) {
		has = reservation{}
		if d.Outcome == Admit && len(d.Case.Plan.Pod.Containers) > 0 {
			has = reservation{tentative, d.Case.Plan.Pod}
		}
	}
	e.preferences.advice = nil // it is asked about when it is known what is free
	e.after = other
	a.pods.give(e, behind, has)
	e.tries.due = time.Now().Add(slowAnswer)
}

// isBehind reports whether the pod stands in line for a reason still.
func (a *admitter) isBehind(e *entry) bool {
	return e.after != nil && e.after.unsettled() && a.pods.find(e.after.pod.UID) == e.after
}

// sayBehind tells of a pod whose turn is long in coming.
func (a *admitter) sayBehind(e *entry) {
	if a.cfg.Wait <= 0 || e.runs || e.after == nil {
		return
	}
	a.say(e, Wait, ReasonWaitPlugin, fmt.Sprintf("a device plugin has not said yet which devices it "+
		"prefers for %s, which comes before it", klog.KObj(e.after.pod)))
}

// unguess takes from others the guesses that are not to be had any more. Those in line make another.
func (a *admitter) unguess(e *entry, gets allocation.Pod) {
	taken := allocation.TakenBy(gets)
	for _, o := range a.pods.order {
		if o == e || !o.guesses() || o.state != asking && o.state != behind {
			continue
		}
		if held, _ := a.pods.ledger.Get(o.pod.UID); overlap(held.Assigned, taken) {
			o.after = nil
			a.pods.give(o, o.state, reservation{kind: tentative})
		}
	}
}

// silence has nobody in line wait for a plugin that has not answered about another pod in time.
func (a *admitter) silence(c completion) {
	for _, o := range a.pods.order {
		if o.state != behind || o.least[c.asked.Resource] == 0 ||
			o.preferences.silent.Has(c.asked.Resource) {
			continue
		}
		key := allocation.AskKey{
			Container: firstWith(o.pod, c.asked.Resource), Resource: c.asked.Resource,
		}
		err := fmt.Errorf("asked about %s it said: %w", klog.KObj(c.entry.pod), c.err)
		o.preferences = o.preferences.answered(key, nil, err)
		o.preferences.advice = nil
		a.cfg.Unadvised(o.pod, key, err)
	}
}

// firstWith is the first container that requests the resource.
func firstWith(pod *v1.Pod, resource string) string {
	for c := range podspec.Containers(pod) {
		for _, r := range podspec.DeviceRequests(c) {
			if r.Resource == resource {
				return c.Name
			}
		}
	}
	return ""
}
