package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/numalet/numalet/topology/podspec"
)

// Keeping says how much a pod keeps of what it already holds.
type Keeping int

const (
	// KeepParts is for a pod that does not run: each resource that is still requested and still
	// exists stays, and the rest is placed around it.
	KeepParts Keeping = iota
	// KeepWhole is for a claim: a container keeps everything or nothing.
	KeepWhole
	// KeepAll is for a pod that runs: a container that holds anything keeps exactly that, even if
	// policies, the machine or the request have changed. Only containers without holdings are placed.
	KeepAll
	// KeepResized is for the resize of a pod that runs: a container keeps devices and claims, and of CPUs
	// and memory what it had first; what it requests more is placed around that.
	KeepResized
)

// keep returns the part of a container's holdings that stays. whole: it covers all that the container
// requests, which needs no place then; this includes a container that requests nothing. Holdings
// from an earlier policy stay as they are.
func (a claimant) keep(own Container) (kept Container, whole bool) {
	whole = true
	if a.resizes {
		return a.resized(own)
	}
	for _, one := range a.demands {
		whole = one.keep(a.kind, own, &kept) && whole
	}
	return kept, whole
}

// sayKept notes in the plan what the container keeps and what it loses.
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

// keptLater returns what containers keep, and what was chosen for them, that are placed after the
// container at this index.
func (d *draft) keptLater(at int) (out []Container) {
	keeps := d.view.Keep != KeepWhole && len(d.view.Own.Containers) > 0
	if !keeps && len(d.view.Chosen) == 0 {
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
		case keeps && d.view.Keep != KeepAll && a.err == nil:
			kept, _ = a.keep(own)
		}
		_ = a.preset(&kept) // reported when it is that container's turn
		out = append(out, kept)
	}
	return out
}
