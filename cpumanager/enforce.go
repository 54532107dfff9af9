package cpumanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Update changes a running container's CPU set; Reason is for people.
type Update struct {
	ContainerID string
	// From is the present set; empty if it is unknown.
	From, To cpuset.CPUSet
	Reason   string
}

// Plan lists the updates that give every running container its wanted set. want and observed are by
// container id; observed is what the runtime reports of running containers, in the kernel's list
// syntax, "" if it does not say. Plan skips containers that are only in one of them, and those that
// should have no CPU at all, which no kernel accepts. Equal sets need no update: without changes
// the plan is empty.
//
// Carry the updates out in order: first those that only give CPUs up, then those whose effect is
// unknown, those that give up and gain, and those that only gain. So shared containers have left a
// CPU before any container grows onto it.
func Plan(want map[string]cpuset.CPUSet, observed map[string]string) []Update {
	var updates []Update
	for _, id := range slices.Sorted(maps.Keys(want)) {
		seen, running := observed[id]
		to := want[id]
		if !running || to.IsEmpty() {
			continue
		}
		from, err := topology.ParseCPUs(strings.TrimSpace(seen))
		switch {
		case err != nil:
			updates = append(updates, Update{ContainerID: id, To: to,
				Reason: fmt.Sprintf("set to %s: the runtime reports %q", to, seen)})
		case from.IsEmpty():
			updates = append(updates, Update{ContainerID: id, To: to,
				Reason: fmt.Sprintf("set to %s: the runtime reports none", to)})
		case !from.Equals(to):
			updates = append(updates, Update{ContainerID: id, From: from, To: to,
				Reason: fmt.Sprintf("change %s to %s", from, to)})
		}
	}
	slices.SortStableFunc(updates, func(a, b Update) int { return cmp.Compare(a.turn(), b.turn()) })
	return updates
}

// turn returns the update's place in the order: lower ones go first.
func (u Update) turn() int {
	switch {
	case u.From.IsEmpty():
		return 1
	case u.To.IsSubsetOf(u.From):
		return 0
	case u.From.IsSubsetOf(u.To):
		return 3
	default:
		return 2
	}
}
