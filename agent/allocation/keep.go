package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

// parts says for people what the container holds, resource by resource.
func (c Container) parts() (out []string) {
	if !c.CPUs.IsEmpty() {
		out = append(out, "CPUs "+c.CPUs.String())
	}
	for _, d := range c.Devices {
		out = append(out, d.Resource+" "+strings.Join(d.IDs[:min(len(d.IDs), 8)], ","))
	}
	for _, b := range c.Memory {
		out = append(out, fmt.Sprintf("%s on node %s", b.Resource, b.Nodes))
	}
	return out
}

// keptLater is what containers keep that start after one of them.
func (d *draft) keptLater(at int) (out []Container) {
	if d.view.Keep == KeepWhole || len(d.view.Own.Containers) == 0 {
		return nil
	}
	for _, a := range d.containers[at+1:] {
		own := d.view.Own.Containers[a.Name]
		switch {
		case d.view.Keep == KeepAll:
			out = append(out, own)
		case a.err == nil:
			kept, _ := a.keep(own)
			out = append(out, kept)
		}
	}
	return out
}
