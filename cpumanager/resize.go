package cpumanager

import (
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Resize picks n CPUs for a container that has some: first those that it started with, then those that it
// was given since, in this order. has lists them so.
//
// If it has fewer than n, it keeps all, and gets more of reusable and free as Choose picks them, near to
// its own and in the nodes of hint as far as these have enough. If it has more, it gives back what was
// added last; of what it started with it keeps the most compact part. Own CPUs may be in free. The errors
// are Choose's.
func (s *Static) Resize(free, reusable cpuset.CPUSet, has []cpuset.CPUSet, n int, hint topology.Hint) (
	cpuset.CPUSet, error) {
	own := cpuset.New().Union(has...)
	if n < own.Size() {
		return s.shrink(has, n)
	}
	all := free.Union(own)
	if err := s.CheckIsolated(all, reusable, n); err != nil {
		return cpuset.New(), err
	}
	from := stores{
		pool:     s.layout.online.only(all).or(s.layout.online.only(reusable)),
		reusable: s.layout.online.only(reusable), held: s.layout.online.only(own),
	}
	if err := s.alignment(from.pool, n); err != nil {
		return cpuset.New(), err
	}
	if size := from.pool.size(); n > size {
		return cpuset.New(), &ShortageError{Requested: n, Available: size}
	}
	return s.exactly(from, n, hint)
}

// shrink picks n of the CPUs that a container has.
func (s *Static) shrink(has []cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	held := cpuset.New()
	for _, layer := range has {
		layer = layer.Difference(held)
		if left := n - held.Size(); layer.Size() > left {
			from := stores{s.layout.online.only(layer), s.none(), s.layout.online.only(held)}
			if err := s.alignment(from.pool, left); err != nil {
				err.Requested = n
				return cpuset.New(), err
			}
			return s.exactly(from, n, topology.Hint{Any: true})
		}
		held = held.Union(layer)
	}
	return held, nil
}

// exactly is pick. If what the container has leaves no whole cores for an even distribution, it packs the
// CPUs; the error says that not even that is possible.
func (s *Static) exactly(from stores, n int, hint topology.Hint) (cpuset.CPUSet, error) {
	packed := s.chooser
	packed.options.DistributeAcrossNUMA = false
	for _, by := range []chooser{s.chooser, packed} {
		if cpus := by.pick(from, n, hint); cpus.Size() == n {
			return cpus, nil
		}
	}
	rest := from.pool.minus(from.held)
	if err := s.alignment(rest, n-from.held.size()); err != nil {
		err.Requested = n
		return cpuset.New(), err
	}
	return cpuset.New(), &ShortageError{Requested: n, Available: from.held.size() + rest.size()}
}

// Layers lists the CPUs of a container in the order in which it got them, as Resize takes them: what it
// started with, and what was added since. Of added only what it has counts.
func Layers(cpus cpuset.CPUSet, added []cpuset.CPUSet) []cpuset.CPUSet {
	out := []cpuset.CPUSet{cpus.Difference(cpuset.New().Union(added...))}
	for _, one := range added {
		if one = one.Intersection(cpus); !one.IsEmpty() {
			out = append(out, one)
		}
	}
	return slices.Clip(out)
}
