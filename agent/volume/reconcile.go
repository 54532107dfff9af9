package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// wanted is a volume that a pod is to have.
type wanted struct {
	place
	// outside: it is not in the pod's directory, and whether it is as it should be is seen only by
	// making it.
	outside bool
	mounted bool // something is to be mounted there
	written bool // what is in it is the agent's to bring up to date
}

// found is a volume that is in a pod's directory.
type found struct {
	place
	complete bool // its making came to its end
	mounted  bool
}

// flaw says what is wrong with a volume as it is there, if it is; empty: nothing.
func (w wanted) flaw(f found, is bool) string {
	switch {
	case !is:
		return "it is not there"
	case w.mounted && !f.mounted:
		return "nothing is mounted there"
	case !f.complete:
		return "it is not complete"
	default:
		return ""
	}
}

func byPlace(have []found) map[place]found {
	out := make(map[place]found, len(have))
	for _, f := range have {
		out[f.place] = f
	}
	return out
}

type verb string

const (
	makeIt verb = "make"
	update verb = "update" // and make it, if it is not there
	remove verb = "remove"
)

// step is what to do about a volume, and why.
type step struct {
	verb  verb
	place place
	why   string
}

func (s step) String() string { return fmt.Sprintf("%s %v: %s", s.verb, s.place, s.why) }

// reconcile says what follows from what a pod is to have and what is there. What nobody wants goes
// first; the rest comes in the order in which it is wanted. Whatever was done of the steps before a
// crash, the steps that follow from what is there then lead to the same end.
func reconcile(want []wanted, have []found) (out []step) {
	there := byPlace(have)
	var steps []step
	for _, w := range want {
		f, is := there[w.place]
		delete(there, w.place)
		do := func(v verb, why string) { steps = append(steps, step{v, w.place, why}) }
		switch why := w.flaw(f, is); {
		case w.written:
			do(update, "its content may have changed")
		case w.outside:
			do(makeIt, "it is looked at each time")
		case why != "":
			do(makeIt, why)
		}
	}
	byName := func(a, b place) int { return strings.Compare(a.String(), b.String()) }
	for _, p := range slices.SortedFunc(maps.Keys(there), byName) {
		out = append(out, step{remove, p, "the pod does not use it"})
	}
	return append(out, steps...)
}
