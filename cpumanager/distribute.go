package cpumanager

import (
	"cmp"
	"slices"

	"github.com/numalet/numalet/topology"
)

// maxSets bounds the divisions that are tried one by one.
const maxSets = 2048

// share is one node's part of a request.
type share struct {
	cpus bitmap
	n    int
}

// distribute divides n CPUs of pool among nodes, as doc.go describes; nil if no division fits.
func (s chooser) distribute(pool bitmap, n int) []share {
	d := division{n: n, step: 1, fits: func([]int) bool { return true }}
	if s.options.FullPCPUsOnly {
		d.step = max(1, coreSizes(s.layout.cores, pool).largest())
	}
	if n%d.step != 0 {
		return nil
	}
	var nodes []bitmap
	listed := s.layout.nodesOf(pool)
	for _, node := range listed {
		nodes = append(nodes, pool.within(node.cpus))
		d.room = append(d.room, nodes[len(nodes)-1].size())
	}
	if s.options.FullPCPUsOnly && s.layout.sizes.only() == 0 {
		d.fits = func(parts []int) bool {
			for i, n := range parts {
				if !s.holds(nodes[i], n) {
					return false
				}
			}
			return true
		}
	}
	if s.options.AlignBySocket {
		d.inOneSocket = func(set []int) bool { return s.layout.inOneSocket(listed, set) }
	}
	for width := 1; width <= min(len(nodes), n/d.step); width++ {
		if parts := d.among(width); parts != nil {
			var shares []share
			for i, n := range parts {
				if n > 0 {
					shares = append(shares, share{nodes[i], n})
				}
			}
			return shares
		}
	}
	return nil
}

// inOneSocket reports whether all the nodes at set are in one socket.
func (l *layout) inOneSocket(nodes []numaNode, set []int) bool {
	return slices.ContainsFunc(l.sockets, func(socket socket) bool {
		return !slices.ContainsFunc(set, func(at int) bool { return !socket.set.Has(nodes[at].id) })
	})
}

// nodesOf lists the nodes with CPUs of pool in the kubelet's order: those with the fewest first,
// but socket by socket if sockets have several nodes.
func (l *layout) nodesOf(pool bitmap) (nodes []numaNode) {
	p := packing{free: pool, held: make(bitmap, len(pool))}
	for _, u := range p.level(l.tree, l.nodeLevel) {
		at := slices.IndexFunc(l.nodes, func(n numaNode) bool { return int(n.id) == u.id })
		listed := func(n numaNode) bool { return int(n.id) == u.id }
		if !slices.ContainsFunc(nodes, listed) { // a node on two sockets occurs twice
			nodes = append(nodes, l.nodes[at])
		}
	}
	return nodes
}

// division looks for the best way to divide n CPUs among nodes in multiples of step.
type division struct {
	room    []int // free CPUs of each node
	n, step int
	fits    func(parts []int) bool
	// inOneSocket is nil unless the nodes of one socket are preferred, which then need not divide
	// evenly.
	inOneSocket func(set []int) bool

	best  []int // CPUs taken from each node
	apart bool  // from more than one socket, if that matters
	score int
}

// among divides the CPUs among width nodes; nil if that is not possible.
func (d *division) among(width int) []int {
	units := d.n / d.step
	sets, subsets := topology.Choices(len(d.room), width, maxSets), 1
	if units%width > 0 {
		subsets = 1 << min(width, 20)
	}
	try := func(set []int) bool {
		d.tryNodes(set, subsets <= maxSets)
		return true
	}
	if sets*subsets <= maxSets {
		topology.Combinations(len(d.room), width, try)
	} else {
		try(roomiest(d.room, width))
	}
	return d.best
}

// tryNodes takes the same number from each node of set, and the remainder from each subset of them
// in turn, or only from the roomiest subset of each size, the largest subsets first.
func (d *division) tryNodes(set []int, all bool) {
	each, remainder, ok := d.even(set)
	if !ok {
		return
	}
	var left, able []int // room left for the remainder, and positions with some
	for i, at := range set {
		left = append(left, d.room[at]-each)
		if left[i] >= d.step {
			able = append(able, i)
		}
	}
	parts := make([]int, len(set))
	try := func(subset []int) {
		for i := range parts {
			parts[i] = each
		}
		if d.stripe(set, parts, subset, remainder) {
			d.offer(set, parts)
		}
	}
	if remainder == 0 {
		try(nil)
		return
	}
	subset := make([]int, len(able))
	for width := len(able); width > 0; width-- {
		if !all {
			try(roomiest(left, width))
			continue
		}
		topology.Combinations(len(able), width, func(choice []int) bool {
			for i, at := range choice {
				subset[i] = able[at]
			}
			try(subset[:width])
			return true
		})
	}
}

// even returns the number to take from each node of set and the units that remain; ok is false if
// the nodes have too few. Nodes of one socket need not give equal numbers.
func (d *division) even(set []int) (each, remainder int, ok bool) {
	units := d.n / d.step
	total, least := 0, units
	for _, at := range set {
		has := d.room[at] / d.step
		total, least = total+has, min(least, has)
	}
	each = units / len(set)
	if total < units || least < each && d.inOneSocket == nil {
		return 0, 0, false
	}
	each = min(each, least)
	return each * d.step, units - each*len(set), true
}

// stripe adds units to the parts of set, one to each of subset in turn, until none is left. It
// returns false if there is no room for them.
func (d *division) stripe(set, parts, subset []int, units int) bool {
	for units > 0 {
		before := units
		for _, i := range subset {
			if units > 0 && d.room[set[i]]-parts[i] >= d.step {
				parts[i] += d.step
				units--
			}
		}
		if units == before {
			return false
		}
	}
	return true
}

// offer compares taking parts of the nodes of set with the best so far, which wins ties. As the
// sums are equal, the standard deviation of what is left is least where the sum of squares is
// least, and that only changes for the nodes of set.
func (d *division) offer(set, parts []int) {
	score := 0
	for i, at := range set {
		left := d.room[at] - parts[i]
		score += left*left - d.room[at]*d.room[at]
	}
	apart := d.inOneSocket != nil && !d.inOneSocket(set)
	if d.best != nil && (apart && !d.apart || apart == d.apart && score >= d.score) {
		return
	}
	taken := make([]int, len(d.room))
	for i, at := range set {
		taken[at] = parts[i]
	}
	if d.fits(taken) {
		d.best, d.apart, d.score = taken, apart, score
	}
}

// roomiest returns the positions of the width largest values, ascending; of equals the first.
func roomiest(room []int, width int) []int {
	order := make([]int, len(room))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(room[b], room[a]) })
	order = order[:width]
	slices.Sort(order)
	return order
}
