package gpu

import (
	"cmp"
	"maps"
	"slices"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// choose picks size devices of available, must included: whole GPUs by the links between them,
// replicas spread or packed, MIG devices so that whole GPUs stay free.
func (o offer) choose(links prefer.Links, available, must []device, size int) []device {
	if o.shared != nil {
		return shares(o.devices, available, must, size, o.shared.Packed)
	}
	if slices.ContainsFunc(available, func(d device) bool { return d.mig }) {
		return packed(available, must, size)
	}
	at := make(map[int]device, len(available))
	positions := func(devices []device) (out []int) {
		for _, d := range devices {
			at[d.gpu] = d
			out = append(out, d.gpu)
		}
		return out
	}
	var chosen []device
	for _, position := range links.Choose(positions(available), positions(must), size) {
		chosen = append(chosen, at[position])
	}
	return chosen
}

// shares picks replicas. Spread, it prefers units with the fewest replicas in this container, then
// those with the fewest in use: two shares come from two GPUs if possible. Packed, it uses few
// units.
func shares(all, available, must []device, size int, pack bool) []device {
	if pack {
		return grouping[*unit]{unitOf, fewest[*unit], byIndex}.pick(available, must, size)
	}
	used := map[*unit]int{} // what is not available counts as used
	for _, d := range all {
		used[d.unit]++
	}
	for _, d := range available {
		used[d.unit]--
	}
	return grouping[*unit]{unitOf, func(u *unit, mine, _, _ int) []int {
		return []int{mine, used[u]}
	}, byIndex}.pick(available, must, size)
}

func unitOf(d device) *unit { return d.unit }

// packed picks MIG devices of few GPUs.
func packed(available, must []device, size int) []device {
	gpu := func(d device) int { return d.gpu }
	return grouping[int]{gpu, fewest[int], cmp.Compare[int]}.pick(available, must, size)
}

// grouping picks devices group by group.
type grouping[K comparable] struct {
	of func(device) K
	// rank says which group comes next, the one with the lowest: mine counts its devices that the
	// container has, left those that it can get, and missing is the number of devices to pick.
	rank func(group K, mine, left, missing int) []int
	// compare decides between groups of the same rank.
	compare func(a, b K) int
}

// fewest is a rank that uses few groups: those of which the container has a device, then the one
// that just suffices, then the one with the most left.
func fewest[K comparable](_ K, mine, left, missing int) []int {
	number, enough := left, left >= missing
	if !enough {
		number = -left // if none suffices, the more the better
	}
	return []int{late(mine > 0), late(enough), number}
}

// pick picks size devices, must included; of a group those with the lowest index.
func (g grouping[K]) pick(available, must []device, size int) []device {
	mine, left := map[K]int{}, map[K][]device{}
	for _, d := range must {
		mine[g.of(d)]++
	}
	others := without(available, must)
	slices.SortStableFunc(others, func(a, b device) int { return byIndex(a.unit, b.unit) })
	for _, d := range others {
		left[g.of(d)] = append(left[g.of(d)], d)
	}
	chosen := slices.Clone(must)
	for len(chosen) < size && len(left) > 0 {
		rank := func(k K) []int { return g.rank(k, mine[k], len(left[k]), size-len(chosen)) }
		next := slices.MinFunc(slices.Collect(maps.Keys(left)), func(a, b K) int {
			return cmp.Or(slices.Compare(rank(a), rank(b)), g.compare(a, b))
		})
		chosen = append(chosen, left[next][0])
		mine[next]++
		if left[next] = left[next][1:]; len(left[next]) == 0 {
			delete(left, next)
		}
	}
	return chosen
}

// late orders true before false.
func late(b bool) int {
	if b {
		return 0
	}
	return 1
}

func without(all, some []device) []device {
	ids := make(map[string]bool, len(some))
	for _, d := range some {
		ids[d.id] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(d device) bool { return ids[d.id] })
}
