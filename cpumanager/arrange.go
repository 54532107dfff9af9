package cpumanager

import (
	"cmp"
	"slices"
)

// takeSpread takes threads of as many cores of a node as it can (KEP-4176): from the node with the
// fewest free CPUs that has room, else node after node. In a node, each thread comes from the core
// of which the container has the fewest, and of these from the idlest.
func (p *packing) takeSpread(nodes []unit) {
	for _, node := range p.roomyFirst(nodes) {
		cores := cores(node.parts)
		for p.left > 0 && p.countFree(node) > 0 {
			core := slices.MinFunc(cores, func(a, b unit) int {
				return cmp.Or(
					cmp.Compare(min(p.countFree(b), 1), min(p.countFree(a), 1)),
					cmp.Compare(p.countOwn(a), p.countOwn(b)),
					cmp.Compare(p.countFree(b), p.countFree(a)),
					cmp.Compare(a.id, b.id),
				)
			})
			p.takeOne(core)
		}
	}
}

func (p *packing) takeOne(core unit) {
	for _, id := range core.cpus {
		if p.free[id] {
			p.take([]int{id})
			return
		}
	}
}

// roomyFirst lists the nodes with the one first that has room for all that is missing, and the
// fewest free CPUs of those that do.
func (p *packing) roomyFirst(nodes []unit) []unit {
	best := -1
	for i, node := range nodes {
		if n := p.room(node); n >= p.left && (best < 0 || n < p.room(nodes[best])) {
			best = i
		}
	}
	if best <= 0 {
		return nodes
	}
	return slices.Concat(nodes[best:best+1], nodes[:best], nodes[best+1:])
}

// room is the number of CPUs of a node or cache group that can be taken.
func (p *packing) room(u unit) int {
	if p.whole == nil {
		return p.countFree(u)
	}
	groups := u.parts
	if len(groups) > 0 && len(groups[0].parts) == 0 {
		groups = []unit{u} // it is a cache group itself
	}
	_, left := p.fit(groups, p.quota)
	return p.left - left.left
}

// takeCaches takes CPUs of few cache groups (KEP-4800): all from the one with the fewest free CPUs
// that has room for what is missing. When there is none, node after node, it takes those of the
// group with the most, and looks again in the same node.
func (p *packing) takeCaches(nodes []unit) {
	var groups []unit
	for _, node := range nodes {
		groups = append(groups, node.parts...)
	}
	if p.takeFromOne(groups) {
		return
	}
	for _, node := range p.roomyFirst(nodes) {
		groups := slices.Clone(node.parts)
		for len(groups) > 0 && !p.takeFromOne(groups) {
			most := slices.MinFunc(groups, func(a, b unit) int {
				return cmp.Or(
					cmp.Compare(p.countHeld(b), p.countHeld(a)),
					cmp.Compare(p.room(b), p.room(a)),
					cmp.Compare(a.id, b.id),
				)
			})
			p.takeGroup(most)
			groups = slices.DeleteFunc(groups, func(g unit) bool { return g.id == most.id })
		}
	}
}

// takeFromOne takes all that is missing from one group, if one has room. Nothing missing is
// success.
func (p *packing) takeFromOne(groups []unit) bool {
	if p.left == 0 {
		return true
	}
	roomy := slices.DeleteFunc(slices.Clone(groups), func(g unit) bool { return p.room(g) < p.left })
	if len(roomy) == 0 {
		return false
	}
	// Of equals the one that comes first in the order of the nodes.
	p.takeGroup(slices.MinFunc(roomy, func(a, b unit) int {
		return cmp.Or(
			cmp.Compare(p.countHeld(b), p.countHeld(a)),
			cmp.Compare(p.countFree(a), p.countFree(b)),
		)
	}))
	return true
}

// takeGroup takes from the group what it can: whole cores, then threads.
func (p *packing) takeGroup(group unit) {
	alone := unit{id: group.id, cpus: group.cpus, parts: []unit{group}}
	p.takeCores(p.wholeCores(alone))
	if p.whole == nil {
		p.takeThreads([]unit{alone})
	}
}
