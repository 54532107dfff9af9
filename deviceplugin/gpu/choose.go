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
// those with the fewest in use: two shares come from two GPUs if possible. Packed, it prefers
// units that the container already has, then the fullest that suffices, then the one with the most
// left.
func shares(all, available, must []device, size int, pack bool) []device {
	used, mine := map[*unit]int{}, map[*unit]int{} // what is not available counts as used
	for _, d := range all {
		used[d.unit]++
	}
	for _, d := range available {
		used[d.unit]--
	}
	take := func(d device) {
		used[d.unit]++
		mine[d.unit]++
	}
	chosen := slices.Clone(must)
	for _, d := range must {
		take(d)
	}
	left := map[*unit][]device{}
	for _, d := range without(available, must) {
		left[d.unit] = append(left[d.unit], d)
	}
	rank := func(u *unit) []int { return []int{mine[u], used[u]} }
	if pack {
		rank = func(u *unit) []int {
			enough := len(left[u]) >= size-len(chosen)
			number := len(left[u])
			if !enough {
				number = -number
			}
			return []int{late(mine[u] > 0), late(enough), number}
		}
	}
	for len(chosen) < size && len(left) > 0 {
		next := slices.MinFunc(slices.Collect(maps.Keys(left)), func(a, b *unit) int {
			return cmp.Or(slices.Compare(rank(a), rank(b)), byIndex(a, b))
		})
		take(left[next][0])
		chosen = append(chosen, left[next][0])
		if left[next] = left[next][1:]; len(left[next]) == 0 {
			delete(left, next)
		}
	}
	return chosen
}

// packed picks MIG devices of few GPUs: first of those with a device in must, then of the one that
// just suffices, then of the one with the most left.
func packed(available, must []device, size int) []device {
	chosen := slices.Clone(must)
	left := without(available, must)
	touched := map[int]bool{}
	for _, d := range must {
		touched[d.gpu] = true
	}
	for len(chosen) < size && len(left) > 0 {
		has := map[int]int{}
		for _, d := range left {
			has[d.gpu]++
		}
		missing := size - len(chosen)
		rank := func(d device) []int {
			enough := has[d.gpu] >= missing
			number := has[d.gpu]
			if !enough {
				number = -number // if none suffices, the more the better
			}
			return []int{late(touched[d.gpu]), late(enough), number, d.gpu}
		}
		best := slices.MinFunc(left, func(a, b device) int {
			return cmp.Or(slices.Compare(rank(a), rank(b)), cmp.Compare(a.index, b.index))
		})
		chosen = append(chosen, best)
		touched[best.gpu] = true
		left = without(left, []device{best})
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
