package resources

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// phase says when a value may change.
type phase int

const (
	// anyTime: a CPU share, memory nodes, and a limit that is imposed or lifted, since a cgroup
	// without a limit has that of the cgroup around it.
	anyTime phase = iota
	first         // the value shrinks
	last          // it grows
)

// phaseOf returns the phase of a limit; 0 is none.
func phaseOf(has, want int64) phase {
	switch {
	case has <= 0 || want <= 0 || has == want:
		return anyTime
	case want < has:
		return first
	default:
		return last
	}
}

// phaseOfQuota compares the CPU time in the same time.
func phaseOfQuota(has, want cgroups.CPULimit) phase {
	return phaseOf(has.Quota*max(want.Period, 1), want.Quota*max(has.Period, 1))
}

// phaseOfCPUs returns the phase of a CPU set. A set that is not reported counts as one that shrinks. A
// set that moves leaves CPUs before it gains others, and keeps the rest meanwhile; if nothing stays, an
// exclusive set comes last, since no container may be on exclusive CPUs before others left them, and one of
// the shared pool first.
func phaseOfCPUs(has string, want cpuset.CPUSet, exclusive bool) (phase, cpuset.CPUSet) {
	from, err := topology.ParseCPUs(has)
	switch keeps := from.Intersection(want); {
	case err != nil, from.IsEmpty(), want.IsSubsetOf(from):
		return first, cpuset.New()
	case from.IsSubsetOf(want):
		return last, cpuset.New()
	case !keeps.IsEmpty():
		return last, keeps
	case exclusive:
		return last, cpuset.New()
	}
	return first, cpuset.New()
}

// steps puts what containers and pods lack into the order in which to apply it:
//
//	0  containers shrink: they leave CPUs and lower their limits; so do volumes in memory
//	1  the cgroups of their pods get the new limits
//	2  containers grow: no CPU is taken before others left it, no limit exceeds the pod's; so do volumes
//
// A step is part of what one container or pod lacks, and one call. The steps at one place do not
// depend on each other. A gap that may change at any time goes along with the rest.
func steps(lacks []lack) (order [3][]lack) {
	for _, l := range slices.SortedFunc(slices.Values(lacks), lack.compare) {
		if l.ID == "" {
			for i, one := range l.ofPod() {
				if len(one.gaps) > 0 {
					order[i] = append(order[i], one)
				}
			}
			continue
		}
		shrink, grow := l, l
		shrink.gaps, grow.gaps = nil, nil
		for _, g := range l.gaps {
			if !g.keeps.IsEmpty() {
				shrink.at.cpus, shrink.leaves = cpusOf(g.keeps), true
				less := g
				less.want, less.phase, less.repair = shrink.at.cpus.text, first, false
				shrink.gaps = append(shrink.gaps, less)
			}
			if g.phase == last || g.phase == anyTime && !l.has(first) && l.has(last) {
				grow.gaps = append(grow.gaps, g)
			} else {
				shrink.gaps = append(shrink.gaps, g)
			}
		}
		shrink.whole, grow.whole = len(grow.gaps) == 0, true
		if len(shrink.gaps) > 0 {
			order[0] = append(order[0], shrink)
		}
		if len(grow.gaps) > 0 {
			order[2] = append(order[2], grow)
		}
	}
	return order
}

func (l lack) compare(o lack) int {
	return cmp.Or(cmp.Compare(l.pod.UID, o.pod.UID), cmp.Compare(l.ID, o.ID))
}

// has reports whether one of the gaps is closed in that phase.
func (l lack) has(t phase) bool {
	return slices.ContainsFunc(l.gaps, func(g gap) bool { return g.phase == t })
}
