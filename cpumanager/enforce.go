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

// Update is a change of a running container's CPU set, with the reason for people.
type Update struct {
	ContainerID string
	// From is the set it has; empty when that is not known.
	From, To cpuset.CPUSet
	Reason   string
}

// Plan lists the updates that give every running container the set it should have. want and
// observed are by container id; observed is what the runtime reports of running containers, in
// the kernel's list syntax, "" if it does not say. Containers that are only in one of them are left
// alone, and so is one that should have no CPU at all, which no kernel accepts. Equal sets need no
// update: without changes the plan is empty.
//
// Carry the updates out in order: those that give CPUs up come first, then those whose effect
// is not known, those that give up and gain, and those that only gain. So the shared containers
// have left a CPU before anything grows onto it.
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

// turn is the update's place in the order: lower ones go first.
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
