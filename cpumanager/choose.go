package cpumanager

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Choose picks n CPUs from free and reusable, as doc.go describes: inside the nodes of hint as far
// as these have enough, reusable ones (from init containers of the same pod) before free ones. The
// same arguments give the same CPUs. CPUs that are not online are not picked. The error is a
// *ShortageError or an *SMTAlignmentError.
func (s *Static) Choose(
	free, reusable cpuset.CPUSet, n int, hint topology.Hint,
) (cpuset.CPUSet, error) {
	online := s.machine.Online()
	reusable = reusable.Intersection(online)
	pool := free.Intersection(online).Union(reusable)
	n = max(n, 0)
	if err := s.alignment(pool, n); err != nil {
		return cpuset.New(), err
	}
	if n > pool.Size() {
		return cpuset.New(), &ShortageError{Requested: n, Available: pool.Size()}
	}
	if s.options.FullPCPUsOnly {
		pool, reusable = wholeCores(s.tree, pool), wholeCores(s.tree, reusable)
	}
	c := choice{static: s, pool: pool, reusable: reusable, left: n, taken: cpuset.New()}
	for _, area := range append(s.areas(hint), online) {
		if s.options.DistributeAcrossNUMA {
			for _, share := range s.distribute(c.available(area), c.left) {
				c.take(share.cpus, share.n)
			}
		}
		c.take(area, c.left)
	}
	return c.taken, nil
}

// areas are the CPUs that the hint leads to, the best first.
func (s *Static) areas(hint topology.Hint) []cpuset.CPUSet {
	if hint.Any {
		return nil
	}
	near := s.machine.CPUsOfNodes(hint.Nodes)
	areas := []cpuset.CPUSet{near}
	if s.options.AlignBySocket {
		socket := cpuset.New()
		for _, id := range s.machine.Sockets() {
			if cpus := s.machine.CPUsOfSocket(id); !cpus.Intersection(near).IsEmpty() {
				socket = socket.Union(cpus)
			}
		}
		areas = append(areas, socket)
	}
	return areas
}

// holds tells whether n CPUs can be had from pool.
func (s *Static) holds(pool cpuset.CPUSet, n int) bool {
	if s.options.FullPCPUsOnly {
		return coreSizes(s.tree, pool).makeUp(n)
	}
	return n <= pool.Size()
}

// choice is a container's CPUs in the making. With full-pcpus-only, pool and reusable are made of
// whole cores.
type choice struct {
	static         *Static
	pool, reusable cpuset.CPUSet
	taken          cpuset.CPUSet
	left           int
}

func (c *choice) available(area cpuset.CPUSet) cpuset.CPUSet {
	return c.pool.Intersection(area).Difference(c.taken)
}

// take takes up to n CPUs of the area, reusable ones first.
func (c *choice) take(area cpuset.CPUSet, n int) {
	// When the area alone does not do, what is taken of it must go together with the rest.
	source, goal := c.available(area), n
	if !c.static.holds(source, n) {
		source, goal = c.available(c.pool), c.left
	}
	for _, from := range []cpuset.CPUSet{c.reusable, c.pool} {
		from = from.Intersection(c.available(area))
		q := quota{left: min(n, from.Size())}
		q.spare = goal - q.left
		if c.static.options.FullPCPUsOnly {
			q.whole = coreSizes(c.static.tree, source.Difference(c.taken))
		}
		held := c.taken.Intersection(c.reusable)
		got := pack(c.static.tree, stock{from, held}, q, c.static.options)
		c.taken = c.taken.Union(got)
		c.left, n, goal = c.left-got.Size(), n-got.Size(), goal-got.Size()
	}
}

// share is a part of a request, for one node.
type share struct {
	cpus cpuset.CPUSet
	n    int
}

// distribute divides n CPUs of pool among the fewest nodes that can take as many each (KEP-2902),
// in units of one CPU, or of one core with full-pcpus-only. What remains of the division goes to the
// nodes with the most CPUs, one unit each. Of several such sets of nodes, it is the one that leaves
// the nodes with the most even number of free CPUs; if one node is enough, it is the one with the
// fewest. It is nil when there is no such division.
func (s *Static) distribute(pool cpuset.CPUSet, n int) []share {
	step := 1
	if s.options.FullPCPUsOnly {
		step = max(1, len(coreSizes(s.tree, pool))-1)
	}
	if n <= 0 || n%step != 0 {
		return nil
	}
	var nodes []share // n is what the node has
	for _, id := range s.nodes {
		cpus := s.machine.CPUsOfNode(id).Intersection(pool)
		nodes = append(nodes, share{cpus, cpus.Size()})
	}
	slices.SortStableFunc(nodes, func(a, b share) int { return cmp.Compare(b.n, a.n) })
	for i, node := range slices.Backward(nodes) {
		if s.holds(node.cpus, n) {
			first := slices.IndexFunc(nodes, func(s share) bool { return s.n == nodes[i].n })
			for _, same := range nodes[first : i+1] { // of equals the one with the lowest id
				if s.holds(same.cpus, n) {
					return []share{{same.cpus, n}}
				}
			}
		}
	}
	for width := 2; width <= len(nodes); width++ {
		shares := slices.Clone(nodes[:width])
		units := n / step
		fits := true
		for i := range shares {
			shares[i].n = units / width * step
			if i < units%width {
				shares[i].n += step
			}
			fits = fits && shares[i].n > 0 && s.holds(shares[i].cpus, shares[i].n)
		}
		if fits {
			return shares
		}
	}
	return nil
}
