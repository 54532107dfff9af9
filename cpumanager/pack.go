package cpumanager

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"
)

// pack picks n of the free CPUs, which must be at least that many. held are CPUs that the container
// has already: units that hold some come first, and count as whole together with them.
func pack(tree []unit, free, held cpuset.CPUSet, n int) cpuset.CPUSet {
	p := packing{need: n, held: held, free: map[int]bool{}, taken: map[int]bool{}}
	for _, id := range free.UnsortedList() {
		p.free[id] = true
	}
	p.takeWhole(p.level(tree, outer))
	p.takeWhole(p.level(tree, inner))
	for _, u := range p.level(tree, inner) {
		for _, core := range p.wholeCores(u) {
			p.take(core.cpus)
		}
	}
	p.takeThreads(p.level(tree, inner))

	ids := make([]int, 0, n)
	for id := range p.taken {
		ids = append(ids, id)
	}
	return cpuset.New(ids...)
}

// packing is a choice in the making. A CPU is free, or taken, or held, or somebody else's.
type packing struct {
	need  int
	held  cpuset.CPUSet
	free  map[int]bool
	taken map[int]bool
}

// take takes the free ones of cpus, in order, until there are enough.
func (p *packing) take(cpus []int) {
	for _, id := range cpus {
		if p.need > 0 && p.free[id] {
			delete(p.free, id)
			p.taken[id] = true
			p.need--
		}
	}
}

// takeWhole takes the units that are free as a whole, the largest first, as long as they fit.
func (p *packing) takeWhole(units []unit) {
	slices.SortStableFunc(units, func(a, b unit) int {
		return cmp.Compare(len(b.cpus), len(a.cpus))
	})
	for _, u := range units {
		if gain := p.gain(u); gain > 0 && gain <= p.need {
			p.take(u.cpus)
		}
	}
}

// takeThreads takes single CPUs from units in their order: from the cores with the fewest free
// threads, in the cache groups that the container has the most CPUs of already.
func (p *packing) takeThreads(units []unit) {
	for _, u := range units {
		if p.need == 0 {
			return
		}
		groups := map[int]unit{} // by core
		var cores []unit
		for _, group := range u.parts {
			for _, core := range group.parts {
				groups[core.id] = group
				cores = append(cores, core)
			}
		}
		slices.SortFunc(cores, func(a, b unit) int {
			ga, gb := groups[a.id], groups[b.id]
			return cmp.Or(
				cmp.Compare(p.countFree(a), p.countFree(b)),
				cmp.Compare(p.countOwn(gb), p.countOwn(ga)),
				cmp.Compare(p.countFree(ga), p.countFree(gb)),
				cmp.Compare(a.id, b.id),
			)
		})
		for _, core := range cores {
			p.take(core.cpus)
		}
	}
}

// wholeCores picks cores of u that are free as a whole and needed as a whole. They are from few
// cache groups, unless this would leave more to be split off other cores.
func (p *packing) wholeCores(u unit) []unit {
	anywhere, total := p.fit(u.parts, p.need)
	threads := p.need - total
	var picked []unit
	groups, left := slices.Clone(u.parts), total
	for left > 0 && len(groups) > 0 {
		best := slices.MinFunc(groups, func(a, b unit) int {
			_, gainA := p.fit([]unit{a}, left)
			_, gainB := p.fit([]unit{b}, left)
			return cmp.Or(
				cmp.Compare(gainB, gainA),
				cmp.Compare(p.countHeld(b), p.countHeld(a)),
				cmp.Compare(min(p.countFree(b), left+threads), min(p.countFree(a), left+threads)),
				cmp.Compare(p.countFree(a), p.countFree(b)),
				cmp.Compare(a.id, b.id),
			)
		})
		cores, gain := p.fit([]unit{best}, left)
		picked, left = append(picked, cores...), left-gain
		groups = slices.DeleteFunc(groups, func(g unit) bool { return g.id == best.id })
	}
	if left > 0 {
		return anywhere
	}
	return picked
}

// fit picks whole cores of the cache groups with no more than need CPUs together: those that the
// container holds a part of, then the largest, then by id. It returns their number of free CPUs.
func (p *packing) fit(groups []unit, need int) (picked []unit, gain int) {
	var cores []unit
	for _, group := range groups {
		for _, core := range group.parts {
			if p.gain(core) > 0 {
				cores = append(cores, core)
			}
		}
	}
	slices.SortFunc(cores, func(a, b unit) int {
		return cmp.Or(
			cmp.Compare(p.countHeld(b), p.countHeld(a)),
			cmp.Compare(len(b.cpus), len(a.cpus)),
			cmp.Compare(a.id, b.id),
		)
	})
	for _, core := range cores {
		if g := p.gain(core); gain+g <= need {
			picked, gain = append(picked, core), gain+g
		}
	}
	return picked, gain
}

// level lists the units at depth that have free CPUs: parent after parent, each time those first
// of which the container holds the most CPUs, then those with the fewest free CPUs.
func (p *packing) level(units []unit, depth int) []unit {
	var ordered []unit
	for _, u := range units {
		if p.countFree(u) > 0 {
			ordered = append(ordered, u)
		}
	}
	slices.SortFunc(ordered, func(a, b unit) int {
		return cmp.Or(
			cmp.Compare(p.countHeld(b), p.countHeld(a)),
			cmp.Compare(p.countFree(a), p.countFree(b)),
			cmp.Compare(a.id, b.id),
		)
	})
	if depth == 0 {
		return ordered
	}
	var parts []unit
	for _, u := range ordered {
		parts = append(parts, p.level(u.parts, depth-1)...)
	}
	return parts
}

// gain is the number of free CPUs of u if the container would then have all of u, else 0.
func (p *packing) gain(u unit) int {
	free := p.countFree(u)
	if free+p.countHeld(u) < len(u.cpus) {
		return 0
	}
	return free
}

func (p *packing) countFree(u unit) int {
	n := 0
	for _, id := range u.cpus {
		if p.free[id] {
			n++
		}
	}
	return n
}

func (p *packing) countHeld(u unit) int {
	n := 0
	for _, id := range u.cpus {
		if p.held.Contains(id) {
			n++
		}
	}
	return n
}

// countOwn counts the CPUs of u that the container has by now.
func (p *packing) countOwn(u unit) int {
	n := p.countHeld(u)
	for _, id := range u.cpus {
		if p.taken[id] {
			n++
		}
	}
	return n
}
