package cpumanager

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"
)

// quota is how many CPUs are still to be picked.
type quota struct {
	left int
	// whole counts the cores that may be taken, now or from elsewhere, when none may be split; nil:
	// cores may be split. With the spare CPUs that come from elsewhere, left must stay possible.
	whole sizes
	spare int
}

// after is the quota when cores with that many free CPUs have been taken; false: it forbids that.
func (q quota) after(gains ...int) (quota, bool) {
	if q.whole != nil {
		q.whole = slices.Clone(q.whole)
	}
	for _, gain := range gains {
		if q.left -= gain; q.left < 0 {
			return q, false
		}
		if q.whole != nil {
			q.whole[gain]--
		}
	}
	return q, q.whole == nil || q.whole.makeUp(q.left+q.spare)
}

// stock is what to pick from. Units of which the container holds CPUs already come first, and count
// as whole together with these.
type stock struct{ free, held cpuset.CPUSet }

// pack picks CPUs among the free ones until the quota is met: all of it if cores may be split and
// free has as many, else what can be had.
func pack(tree []unit, from stock, q quota, o Options) cpuset.CPUSet {
	p := packing{quota: q, held: from.held, free: map[int]bool{}, taken: map[int]bool{}}
	for _, id := range from.free.UnsortedList() {
		p.free[id] = true
	}
	p.takeWhole(p.level(tree, outer))
	p.takeWhole(p.level(tree, inner))
	switch {
	case o.DistributeAcrossCores:
		p.takeSpread(p.level(tree, inner))
	case o.PreferAlignByUncoreCache:
		p.takeCaches(p.level(tree, inner))
	}
	for _, u := range p.level(tree, inner) {
		p.takeCores(p.wholeCores(u))
	}
	if q.whole == nil {
		p.takeThreads(p.level(tree, inner))
	}

	ids := make([]int, 0, len(p.taken))
	for id := range p.taken {
		ids = append(ids, id)
	}
	return cpuset.New(ids...)
}

// packing is a choice in the making. A CPU is free, or taken, or held, or somebody else's.
type packing struct {
	quota
	held  cpuset.CPUSet
	free  map[int]bool
	taken map[int]bool
}

// take takes the free ones of cpus, in order, until there are enough.
func (p *packing) take(cpus []int) {
	for _, id := range cpus {
		if p.left > 0 && p.free[id] {
			delete(p.free, id)
			p.taken[id] = true
			p.left--
		}
	}
}

// takeCores takes all free CPUs of cores that the quota allows.
func (p *packing) takeCores(cores []unit) {
	for _, core := range cores {
		if n := p.countFree(core); p.whole != nil && n > 0 {
			p.whole = p.whole.with(n, -1)
		}
		p.take(core.cpus)
	}
}

// takeWhole takes the units that are free as a whole, the largest first, as long as they fit.
func (p *packing) takeWhole(units []unit) {
	slices.SortStableFunc(units, func(a, b unit) int {
		return cmp.Compare(len(b.cpus), len(a.cpus))
	})
	for _, u := range units {
		if p.gain(u) == 0 || p.gain(u) > p.left {
			continue
		}
		var gains []int
		for _, core := range cores(u.parts) {
			if n := p.countFree(core); n > 0 {
				gains = append(gains, n)
			}
		}
		if _, ok := p.after(gains...); ok {
			p.takeCores(cores(u.parts))
		}
	}
}

// takeThreads takes single CPUs from units in their order: from the cores with the fewest free
// threads, in the cache groups that the container has the most CPUs of already.
func (p *packing) takeThreads(units []unit) {
	for _, u := range units {
		if p.left == 0 {
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
	anywhere, rest := p.fit(u.parts, p.quota)
	threads := rest.left
	left := p.quota
	left.left, left.spare = left.left-threads, left.spare+threads
	var picked []unit
	groups := slices.Clone(u.parts)
	for left.left > 0 && len(groups) > 0 {
		best := slices.MinFunc(groups, func(a, b unit) int {
			return cmp.Or(
				cmp.Compare(p.gainOf(b, left), p.gainOf(a, left)),
				cmp.Compare(p.countHeld(b), p.countHeld(a)),
				cmp.Compare(min(p.countFree(b), left.left+threads),
					min(p.countFree(a), left.left+threads)),
				cmp.Compare(p.countFree(a), p.countFree(b)),
				cmp.Compare(a.id, b.id),
			)
		})
		var cores []unit
		cores, left = p.fit([]unit{best}, left)
		picked = append(picked, cores...)
		groups = slices.DeleteFunc(groups, func(g unit) bool { return g.id == best.id })
	}
	if left.left > 0 {
		return anywhere
	}
	return picked
}

// fit picks whole cores of the cache groups as far as the quota goes: those that the container
// holds a part of, then the largest, then by id. It returns what is left of the quota.
func (p *packing) fit(groups []unit, q quota) (picked []unit, left quota) {
	var all []unit
	for _, group := range groups {
		for _, core := range group.parts {
			if p.gain(core) > 0 {
				all = append(all, core)
			}
		}
	}
	slices.SortFunc(all, func(a, b unit) int {
		return cmp.Or(
			cmp.Compare(p.countHeld(b), p.countHeld(a)),
			cmp.Compare(len(b.cpus), len(a.cpus)),
			cmp.Compare(a.id, b.id),
		)
	})
	for _, core := range all {
		if rest, ok := q.after(p.gain(core)); ok {
			picked, q = append(picked, core), rest
		}
	}
	return picked, q
}

// gainOf is the number of CPUs in whole cores of the group that the quota allows.
func (p *packing) gainOf(group unit, q quota) int {
	_, left := p.fit([]unit{group}, q)
	return q.left - left.left
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
