package cpumanager

import (
	"cmp"
	"slices"
)

// takeAcrossCores takes threads of as many cores of a socket as possible (KEP-4176), socket after
// socket: each thread comes from the core of which the container has the fewest, and among these
// from the idlest.
func (p *packing) takeAcrossCores(sockets []*unit) {
	for _, socket := range sockets {
		cores := p.rank(socket.cores)
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

// room returns the number of CPUs of a cache group that can be taken, at most what is missing if no
// core may be split.
func (p *packing) room(group *unit) int {
	if p.whole == nil {
		return p.free.count(group.cpus)
	}
	_, left := p.fit([]*unit{group}, p.quota)
	return p.left - left.left
}

// caches lists the cache groups with free CPUs, node by node.
func (p *packing) caches(l *layout) (groups []*unit) {
	for _, node := range p.level(l.tree, l.nodeLevel) {
		inside := node.parts
		if l.nodeLevel == outer { // these are sockets
			inside = nil
			for _, socket := range node.parts {
				inside = append(inside, socket.parts...)
			}
		}
		groups = append(groups, p.level(inside, 0)...)
	}
	return groups
}

// takeCaches takes the cache groups that are free and needed as a whole, and then all that is
// missing from the first group with room for it, if there is one (KEP-4800).
func (p *packing) takeCaches(groups []*unit) {
	p.takeWhole(slices.Clone(groups))
	for _, g := range groups {
		if p.left > 0 && p.room(g) >= p.left {
			p.takeGroup(g)
		}
	}
}

// takeGroup takes what the group can give: whole cores, then threads.
func (p *packing) takeGroup(group *unit) {
	alone := []*unit{group}
	p.takeCores(p.wholeCores(alone))
	if p.whole == nil {
		p.takeThreads(alone)
	}
}
