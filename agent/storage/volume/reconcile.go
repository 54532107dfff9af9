package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// wanted is a volume that a pod should have.
type wanted struct {
	place
	// outside: the volume is not in the pod's directory, so only making it shows whether it is as
	// it should be.
	outside bool
	mounted bool // something should be mounted there
	written bool // the agent writes its content
	renewed bool // its driver wants to make it again
}

// found is a volume in a pod's directory.
type found struct {
	place
	complete bool // it was made to the end
	mounted  bool
}

// flaw returns what is wrong with a volume; "": nothing. is: it exists.
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
	update verb = "update" // and make it if it does not exist
	remove verb = "remove"
)

// step says what to do with a volume, and why.
type step struct {
	verb  verb
	place place
	why   string
}

func (s step) String() string { return fmt.Sprintf("%s %v: %s", s.verb, s.place, s.why) }

// reconcile returns the steps from what exists to what a pod should have. It first removes volumes that
// are not wanted; the rest keeps the order of want, where a PVC of two volumes counts once. After a crash
// between steps, the steps that follow from what exists then lead to the same end.
func reconcile(want []wanted, have []found) (out []step) {
	there := byPlace(have)
	var steps []step
	seen := map[place]bool{}
	for _, w := range want {
		if seen[w.place] {
			continue
		}
		seen[w.place] = true
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
		case w.renewed:
			do(update, "its driver wants it published again")
		}
	}
	byName := func(a, b place) int { return strings.Compare(a.String(), b.String()) }
	for _, p := range slices.SortedFunc(maps.Keys(there), byName) {
		out = append(out, step{remove, p, "the pod does not use it"})
	}
	return append(out, steps...)
}
