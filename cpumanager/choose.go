package cpumanager

import (
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Choose picks n CPUs from free and reusable, as doc.go describes: inside the nodes of hint as far
// as these have enough, and reusable ones (from init containers of the same pod) before free ones.
// The same arguments give the same CPUs. It ignores CPUs that are not online. The error is a
// *ShortageError, an *IsolatedShortageError or an *SMTAlignmentError.
func (s *Static) Choose(
	free, reusable cpuset.CPUSet, n int, hint topology.Hint,
) (cpuset.CPUSet, error) {
	again := s.layout.online.only(reusable)
	pool := s.layout.online.only(free).or(again)
	n = max(n, 0)
	if err := s.CheckIsolated(free, reusable, n); err != nil {
		return cpuset.New(), err
	}
	if err := s.alignment(pool, n); err != nil {
		return cpuset.New(), err
	}
	if size := pool.size(); n > size {
		return cpuset.New(), &ShortageError{Requested: n, Available: size}
	}
	return s.pick(stores{pool, again, s.none()}, n, hint), nil
}

// chooser picks CPUs of a machine by a policy's options, for any purpose.
type chooser struct {
	layout  *layout
	options Options
}

// WholeCores reports whether only whole cores are assigned.
func (s chooser) WholeCores() bool { return s.options.FullPCPUsOnly }

// Online returns the CPUs of the machine that containers can run on.
func (s chooser) Online() cpuset.CPUSet { return s.layout.machine.Online() }

// stores are the CPUs that pick chooses from: reusable ones come first, and held ones, which are the
// container's already, stay.
type stores struct{ pool, reusable, held bitmap }

func (s chooser) none() bitmap { return make(bitmap, len(s.layout.online)) }

// pick is Static.Choose on bitmaps; the caller has checked that n CPUs can be had.
func (s chooser) pick(from stores, n int, hint topology.Hint) cpuset.CPUSet {
	if s.options.FullPCPUsOnly {
		from.pool = wholeCores(s.layout.cores, from.pool)
		from.reusable = wholeCores(s.layout.cores, from.reusable)
	}
	c := choice{policy: s, pool: from.pool, reusable: from.reusable.or(from.held), taken: from.held,
		left: n - from.held.size()}
	for _, area := range []bitmap{s.area(hint), s.layout.online} {
		if c.left == 0 {
			break
		}
		if s.options.DistributeAcrossNUMA {
			has := from.held.and(area)
			for _, share := range s.distribute(c.available(area).or(has), c.left+has.size()) {
				c.take(share.cpus, min(c.left, share.n-has.and(share.cpus).size()))
			}
		}
		c.take(area, c.left)
	}
	return c.taken.cpuSet()
}

// area returns the CPUs of the hint's nodes or, with align-by-socket, of their sockets.
func (s chooser) area(hint topology.Hint) bitmap {
	if hint.Any {
		return s.layout.online
	}
	area := make(bitmap, len(s.layout.online))
	if s.options.AlignBySocket {
		for _, socket := range s.layout.sockets {
			if !socket.set.Intersect(hint.Nodes).IsEmpty() {
				area.add(socket.cpus)
			}
		}
		return area
	}
	for _, node := range s.layout.nodes {
		if hint.Nodes.Has(node.id) {
			area.add(node.cpus)
		}
	}
	return area
}

// holds reports whether pool can give n CPUs.
func (s chooser) holds(pool bitmap, n int) bool {
	if s.options.FullPCPUsOnly {
		return coreSizes(s.layout.cores, pool).makeUp(n)
	}
	return n <= pool.size()
}

// choice holds a container's CPUs while they are picked. With full-pcpus-only, pool and reusable
// consist of whole cores.
type choice struct {
	policy                chooser
	pool, reusable, taken bitmap
	left                  int
}

func (c *choice) available(area bitmap) bitmap { return c.pool.and(area).minus(c.taken) }

// take takes up to n CPUs of the area, reusable ones first.
func (c *choice) take(area bitmap, n int) {
	// If the area does not suffice, what is taken of it must fit together with the rest.
	source, goal := c.available(area), n
	if !c.policy.holds(source, n) {
		source, goal = c.available(c.pool), c.left
	}
	for _, from := range []bitmap{c.reusable, c.pool} {
		from = from.and(c.available(area))
		q := quota{left: min(n, from.size())}
		if q.left == 0 {
			continue
		}
		q.elsewhere = goal - q.left
		if c.policy.options.FullPCPUsOnly {
			q.whole = coreSizes(c.policy.layout.cores, source.minus(c.taken))
		}
		got := pack(c.policy.layout, stock{from, c.taken.and(c.reusable)}, q, c.policy.options)
		c.taken = c.taken.or(got)
		size := got.size()
		c.left, n, goal = c.left-size, n-size, goal-size
	}
}
