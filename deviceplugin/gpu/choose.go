package gpu

import (
	"cmp"
	"maps"
	"slices"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// choose picks size devices of available, must among them: whole GPUs by what is between them,
// replicas so that all GPUs have the same load, MIG devices so that GPUs stay free of any.
func (o offer) choose(links prefer.Links, available, must []device, size int) []device {
	if o.shared != nil {
		return leastShared(o.devices, available, must, size)
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

// leastShared takes replicas of those units of which the fewest are in use: what is not available
// is taken to be.
func leastShared(all, available, must []device, size int) []device {
	used := map[*unit]int{}
	for _, d := range all {
		used[d.unit]++
	}
	for _, d := range available {
		used[d.unit]--
	}
	chosen := slices.Clone(must)
	for _, d := range must {
		used[d.unit]++
	}
	left := map[*unit][]device{}
	for _, d := range without(available, must) {
		left[d.unit] = append(left[d.unit], d)
	}
	for len(chosen) < size && len(left) > 0 {
		next := slices.MinFunc(slices.Collect(maps.Keys(left)), func(a, b *unit) int {
			return cmp.Or(cmp.Compare(used[a], used[b]), byIndex(a, b))
		})
		used[next]++
		chosen = append(chosen, left[next][0])
		if left[next] = left[next][1:]; len(left[next]) == 0 {
			delete(left, next)
		}
	}
	return chosen
}

// packed takes MIG devices of few GPUs: of those that must be used, then of one that has just
// enough, then of those with the most.
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
				number = -number // the more the better, where none suffices
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
