package cpumanager

import (
	"cmp"
	"slices"
)

// takeSpread takes threads of as many cores of a node as it can (KEP-4176): from the node with the
// fewest free CPUs that has room, else node after node. In a node, each thread comes from the core
// of which the container has the fewest, and of these from the idlest.
func (p *packing) takeSpread(nodes []*unit) {
	for _, node := range p.roomyFirst(nodes) {
		cores := p.rank(node.cores)
		for i := range cores {
			cores[i].held += p.taken.count(cores[i].cpus)
		}
		for p.left > 0 && len(cores) > 0 {
			best := 0
			for i, core := range cores {
				if b := cores[best]; cmp.Or(cmp.Compare(core.held, b.held),
					cmp.Compare(b.free, core.free), cmp.Compare(core.id, b.id)) < 0 {
					best = i
				}
			}
			core := &cores[best]
			p.left -= p.free.move(p.taken, core.cpus, 1)
			core.held, core.free = core.held+1, core.free-1
			if core.free == 0 {
				cores = slices.Delete(cores, best, best+1)
			}
		}
	}
}

// roomyFirst lists the nodes with the one first that has room for all that is missing, and the
// fewest free CPUs of those that do.
func (p *packing) roomyFirst(nodes []*unit) []*unit {
	best, least := -1, 0
	for i, node := range nodes {
		if n := p.room(node); n >= p.left && (best < 0 || n < least) {
			best, least = i, n
		}
	}
	if best <= 0 {
		return nodes
	}
	return slices.Concat(nodes[best:best+1], nodes[:best], nodes[best+1:])
}

// room is the number of CPUs of a node or cache group that can be taken.
func (p *packing) room(u *unit) int {
	if p.whole == nil {
		return p.free.count(u.cpus)
	}
	groups := u.parts
	if len(groups) > 0 && len(groups[0].parts) == 0 {
		groups = []*unit{u} // it is a cache group itself
	}
	_, left := p.fit(groups, p.quota)
	return p.left - left.left
}

// takeCaches takes CPUs of few cache groups (KEP-4800): all from the one with the fewest free CPUs
// that has room for what is missing. When there is none, node after node, it takes those of the
// group with the most, and looks again in the same node.
func (p *packing) takeCaches(nodes []*unit) {
	var groups []*unit
	for _, node := range nodes {
		groups = append(groups, node.parts...)
	}
	if p.takeFromOne(groups) {
		return
	}
	for _, node := range p.roomyFirst(nodes) {
		groups := slices.Clone(node.parts)
		for len(groups) > 0 && !p.takeFromOne(groups) {
			best, most := 0, ranked{}
			for i, g := range groups {
				this := ranked{g, p.held.count(g.cpus), p.room(g)}
				if i == 0 || cmp.Or(cmp.Compare(most.held, this.held),
					cmp.Compare(most.free, this.free), cmp.Compare(this.id, most.id)) < 0 {
					best, most = i, this
				}
			}
			p.takeGroup(most.unit)
			groups = slices.Delete(groups, best, best+1)
		}
	}
}

// takeFromOne takes all that is missing from one group, if one has room. Nothing missing is
// success.
func (p *packing) takeFromOne(groups []*unit) bool {
	if p.left == 0 {
		return true
	}
	var best ranked // of equals the one that comes first in the order of the nodes
	for _, g := range groups {
		if p.room(g) < p.left {
			continue
		}
		this := ranked{g, p.held.count(g.cpus), p.free.count(g.cpus)}
		if best.unit == nil ||
			cmp.Or(cmp.Compare(best.held, this.held), cmp.Compare(this.free, best.free)) < 0 {
			best = this
		}
	}
	if best.unit == nil {
		return false
	}
	p.takeGroup(best.unit)
	return true
}

// takeGroup takes from the group what it can: whole cores, then threads.
func (p *packing) takeGroup(group *unit) {
	alone := []*unit{group}
	p.takeCores(p.wholeCores(alone))
	if p.whole == nil {
		p.takeThreads(alone)
	}
}
