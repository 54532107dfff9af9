package cpumanager

import (
	"cmp"
	"slices"
)

// quota is the number of CPUs still to be picked, with limits.
type quota struct {
	left int
	// whole counts the cores that may be taken, now or from elsewhere, if none may be split; nil:
	// cores may be split. left and elsewhere together must stay possible.
	whole     sizes
	elsewhere int
}

// own returns a copy of the quota that spend may change.
func (q quota) own() quota {
	q.whole = slices.Clone(q.whole)
	return q
}

// spend takes a core with gain free CPUs, if the quota allows it.
func (q *quota) spend(gain int) bool {
	if gain > q.left {
		return false
	}
	q.left -= gain
	if q.whole == nil {
		return true
	}
	q.whole[gain]--
	if q.whole.makeUp(q.left + q.elsewhere) {
		return true
	}
	q.left += gain
	q.whole[gain]++
	return false
}

// stock has the CPUs to pick from. Units of which the container already holds CPUs come first, and
// count as whole together with these.
type stock struct{ free, held bitmap }

// pack picks free CPUs until the quota is met: entirely if cores may be split and enough CPUs are
// free, else as far as possible.
func pack(l *layout, from stock, q quota, o Options) bitmap {
	p := packing{
		quota: q.own(), held: from.held, free: from.free.clone(),
		taken: make(bitmap, len(from.free)),
	}
	tree := l.tree
	p.takeWhole(p.level(tree, outer))
	p.takeWhole(p.level(tree, inner))
	switch {
	case p.left == 0:
	case o.DistributeAcrossCores:
		p.takeAcrossCores(p.level(tree, outer+inner-l.nodeLevel))
	case o.PreferAlignByUncoreCache:
		p.takeCaches(p.caches(l))
	}
	if p.left > 0 {
		for _, u := range p.level(tree, inner) {
			p.takeCores(p.wholeCores(u.parts))
		}
	}
	if p.left > 0 && p.whole == nil {
		for _, u := range p.level(tree, inner) {
			p.takeThreads(u.parts)
		}
	}
	return p.taken
}

// packing is a choice in progress. A CPU is free, taken, held, or outside the stock.
type packing struct {
	quota
	held, free, taken bitmap
	found             []ranked // scratch space of fit
}

// ranked is a unit with its sort keys.
type ranked struct {
	*unit
	held, free int
}

// take takes the free CPUs of u, lowest first, until there are enough.
func (p *packing) take(u *unit) { p.left -= p.free.move(p.taken, u.cpus, p.left) }

// takeCores takes all free CPUs of cores that the quota allows.
func (p *packing) takeCores(cores []*unit) {
	for _, core := range cores {
		if p.whole != nil {
			if n := p.free.count(core.cpus); n > 0 {
				p.whole[n]--
			}
		}
		p.take(core)
	}
}

// takeWhole takes the entirely free units, largest first, as long as they fit.
func (p *packing) takeWhole(units []*unit) {
	slices.SortStableFunc(units, func(a, b *unit) int { return cmp.Compare(b.size, a.size) })
	for _, u := range units {
		if gain := p.gain(u); gain > 0 && gain <= p.left && p.allows(u) {
			p.takeCores(u.cores)
		}
	}
}

// allows reports whether the quota allows all cores of u together; left must suffice for them.
func (p *packing) allows(u *unit) bool {
	if p.whole == nil {
		return true
	}
	q := p.own()
	for _, core := range u.cores {
		if n := p.free.count(core.cpus); n > 0 {
			q.left -= n
			q.whole[n]--
		}
	}
	return q.whole.makeUp(q.left + q.elsewhere)
}

// takeThreads takes single CPUs of the cache groups: from the cores with the fewest free threads,
// in the groups where the container already has the most CPUs.
func (p *packing) takeThreads(groups []*unit) {
	if p.left == 0 {
		return
	}
	type candidate struct {
		core  *unit
		free  int
		group ranked // held and taken
	}
	var candidates []candidate
	for _, g := range groups {
		group := ranked{g, p.held.count(g.cpus) + p.taken.count(g.cpus), p.free.count(g.cpus)}
		for _, core := range g.parts {
			if n := p.free.count(core.cpus); n > 0 {
				candidates = append(candidates, candidate{core, n, group})
			}
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(a.free, b.free),
			cmp.Compare(b.group.held, a.group.held),
			cmp.Compare(a.group.free, b.group.free),
			cmp.Compare(a.core.id, b.core.id),
		)
	})
	for _, c := range candidates {
		p.take(c.core)
	}
}

// wholeCores picks cores of a node's cache groups that are free as a whole and needed as a whole.
// It uses few groups, unless this would leave more CPUs to split off other cores.
func (p *packing) wholeCores(groups []*unit) []*unit {
	if p.left == 0 {
		return nil
	}
	anywhere, rest := p.fit(groups, p.quota)
	if len(groups) == 1 {
		return anywhere
	}
	threads := rest.left
	left := p.quota
	left.left, left.elsewhere = left.left-threads, left.elsewhere+threads
	var picked []*unit
	for groups := p.rank(groups); left.left > 0 && len(groups) > 0; {
		best, most := 0, -1
		for i, g := range groups {
			gain := p.gainOf(g.unit, left)
			if b := groups[best]; cmp.Or(
				cmp.Compare(most, gain),
				cmp.Compare(b.held, g.held),
				cmp.Compare(min(b.free, left.left+threads), min(g.free, left.left+threads)),
				cmp.Compare(g.free, b.free),
				cmp.Compare(g.id, b.id),
			) < 0 {
				best, most = i, gain
			}
		}
		var cores []*unit
		cores, left = p.fit([]*unit{groups[best].unit}, left)
		picked = append(picked, cores...)
		groups = slices.Delete(groups, best, best+1)
	}
	if left.left > 0 {
		return anywhere
	}
	return picked
}

// gainOf returns the number of CPUs in whole cores of the group that the quota allows.
func (p *packing) gainOf(group *unit, q quota) int {
	gain := 0
	for _, core := range group.parts {
		gain += p.gain(core)
	}
	if q.whole == nil && gain <= q.left {
		return gain // no need to look which cores
	}
	_, left := p.fit([]*unit{group}, q)
	return q.left - left.left
}

// fit picks whole cores of the cache groups as far as the quota goes: first cores that the
// container partly holds, then the largest, then by id. It returns the rest of the quota.
func (p *packing) fit(groups []*unit, q quota) (picked []*unit, left quota) {
	left = q.own()
	all := p.found[:0]
	for _, group := range groups {
		for _, core := range group.parts {
			if gain := p.gain(core); gain > 0 {
				all = append(all, ranked{core, core.size - gain, gain})
			}
		}
	}
	p.found = all
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(
			cmp.Compare(b.held, a.held), cmp.Compare(b.size, a.size), cmp.Compare(a.id, b.id),
		)
	})
	for _, core := range all {
		if left.spend(core.free) {
			picked = append(picked, core.unit)
		}
	}
	return picked, left
}

// rank returns the units with free CPUs, with their counts.
func (p *packing) rank(units []*unit) []ranked {
	out := make([]ranked, 0, len(units))
	for _, u := range units {
		if n := p.free.count(u.cpus); n > 0 {
			out = append(out, ranked{u, p.held.count(u.cpus), n})
		}
	}
	return out
}

// level lists the units at depth that have free CPUs: parent by parent, each time first those of
// which the container holds the most CPUs, then those with the fewest free CPUs.
func (p *packing) level(units []*unit, depth int) []*unit {
	ordered := p.rank(units)
	slices.SortFunc(ordered, func(a, b ranked) int {
		return cmp.Or(
			cmp.Compare(b.held, a.held), cmp.Compare(a.free, b.free), cmp.Compare(a.id, b.id),
		)
	})
	var out []*unit
	for _, u := range ordered {
		if depth == 0 {
			out = append(out, u.unit)
		} else {
			out = append(out, p.level(u.parts, depth-1)...)
		}
	}
	return out
}

// gain returns the number of free CPUs of u if the container would then have all of u, else 0.
func (p *packing) gain(u *unit) int {
	free := p.free.count(u.cpus)
	if free < u.size && free+p.held.count(u.cpus) < u.size {
		return 0
	}
	return free
}
