package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/numalet/numalet/topology/podspec"
)

// Keeping is how much stays of what a pod holds already.
type Keeping int

const (
	// KeepParts is for a pod of which nothing runs: each resource of a container stays that still
	// is what it requests and that the machine still has, and the others are placed around it.
	KeepParts Keeping = iota
	// KeepWhole is for a claim: a container keeps all that it has, or nothing.
	KeepWhole
	// KeepAll is for a pod that runs: a container that has anything keeps just that, whatever has
	// become of policies, the machine or the request; only containers that have nothing are placed.
	KeepAll
)

// keep is what a container keeps of what it holds, and whether that is all that it requests: also
// of one that wants nothing, for which no place is needed. What was of an earlier policy stays as
// it is.
func (a claimant) keep(own Container) (kept Container, whole bool) {
	whole = true
	for _, one := range a.demands {
		whole = one.keep(a.kind, own, &kept) && whole
	}
	return kept, whole
}

// sayKept notes what a container that had something keeps of it, and what is placed around that.
func (d *draft) sayKept(name string, own, kept Container) {
	if own.IsEmpty() {
		return
	}
	stays := kept.parts()
	goes := slices.DeleteFunc(own.parts(), func(text string) bool {
		return slices.Contains(stays, text)
	})
	d.plan.Kept = append(d.plan.Kept,
		fmt.Sprintf("container %s keeps %s; no longer valid, or not as requested: %s",
			name, cmp.Or(strings.Join(stays, ", "), "nothing"),
			cmp.Or(strings.Join(goes, ", "), "nothing")))
}

// keptLater is what containers keep, and what is chosen for them, that start after one of them, or
// before it and are placed after it.
func (d *draft) keptLater(at int) (out []Container) {
	keeps := d.view.Keep != KeepWhole && len(d.view.Own.Containers) > 0
	if !keeps && len(d.view.chosen) == 0 {
		return nil
	}
	for i, a := range d.containers {
		if _, placed := d.plan.Pod.Containers[a.Name]; i == at ||
			i < at && (placed || a.kind == podspec.Init) {
			continue
		}
		own := d.view.Own.Containers[a.Name]
		var kept Container
		switch {
		case keeps && d.view.Keep == KeepAll && !own.IsEmpty():
			out = append(out, own)
			continue
		case keeps && d.view.Keep == KeepParts && a.err == nil:
			kept, _ = a.keep(own)
		}
		_ = a.preset(&kept) // it is told of at that container's turn
		out = append(out, kept)
	}
	return out
}
