package prefer

import "slices"

const (
	// maxGroups bounds the groups of one size that are tried; 16 GPUs that all differ have 12,870.
	maxGroups = 1 << 14
	// maxTried bounds the groups looked at in total; beyond it, ties are no longer broken by what
	// they leave.
	maxTried = 1 << 20
	// mostGPUs is the largest machine on which groups are tried at all.
	mostGPUs = 64
)

// mesh is the largest number of GPUs that NVLinks join without switches. Only in a mesh can the
// choice among equal pairs spoil all groups of four.
const mesh = 8

// laterSizes are the group sizes that others may ask for next, the largest first.
var laterSizes = [...]int{8, 4, 2}

// Choose returns size positions of available, must included, in ascending order. It returns nil if
// there is no such group.
func (l Links) Choose(available, must []int, size int) []int {
	available = sorted(append(slices.Clone(available), must...))
	must = sorted(slices.Clone(must))
	if size < len(must) || size > len(available) || size <= 0 {
		return nil
	}
	others := without(available, must)
	l = l.symmetric()
	s := search{links: l, kinds: l.kinds(others, available)}
	for _, of := range append(laterSizes[:], size-len(must)) {
		if len(l) > mostGPUs || s.groups(of) > maxGroups {
			return l.grow(available, must, size)
		}
	}
	return s.best(available, must, size)
}

func sorted(positions []int) []int {
	slices.Sort(positions)
	return slices.Compact(positions)
}

// kinds sorts the GPUs of group into kinds of interchangeable ones, which have the same link to
// each other GPU of among.
func (l Links) kinds(group, among []int) (kinds [][]int) {
	for _, i := range group {
		at := slices.IndexFunc(kinds, func(kind []int) bool { return l.same(i, kind[0], among) })
		if at < 0 {
			at, kinds = len(kinds), append(kinds, nil)
		}
		kinds[at] = append(kinds[at], i)
	}
	return kinds
}

func (l Links) same(i, j int, among []int) bool {
	for _, k := range among {
		if k != i && k != j && l[i][k] != l[j][k] {
			return false
		}
	}
	return true
}

// search tries groups. It takes the first GPUs of each kind.
type search struct {
	links Links
	kinds [][]int
	tried int // groups looked at
}

// groups returns the number of different groups of a size, or more than maxGroups.
func (s *search) groups(size int) int {
	ways := make([]int, size+1) // ways to take so many GPUs of the kinds so far
	ways[0] = 1
	for _, kind := range s.kinds {
		for have := size; have >= 0; have-- {
			for taken := 1; taken <= min(len(kind), have); taken++ {
				ways[have] = min(ways[have]+ways[have-taken], maxGroups+1)
			}
		}
	}
	return ways[size]
}

// each calls f with every different group of size that contains begin, and with its quality. It
// skips groups that are worse than floor, or than the floor that f returns. f must not keep the
// slice.
func (s *search) each(begin []int, size int, floor Quality, f func([]int, Quality) Quality) {
	more := s.links.more(size)
	group := slices.Grow(slices.Clone(begin), size)
	left := 0
	for _, kind := range s.kinds {
		left += len(kind)
	}
	var next func(kind, left int, q Quality)
	next = func(kind, left int, q Quality) {
		switch {
		case len(group) == size:
			s.tried++
			if next := f(group, q); next.Compare(floor) > 0 {
				floor = next
			}
			return
		case kind == len(s.kinds) || left < size-len(group):
			return
		case !q.reaches(floor, more[len(group)]):
			return
		}
		before, of := len(group), s.kinds[kind]
		next(kind+1, left-len(of), q)
		for _, i := range of[:min(len(of), size-before)] {
			q = s.links.joined(q, group, i)
			group = append(group, i)
			next(kind+1, left-len(of), q)
		}
		group = group[:before]
	}
	next(0, left, s.links.of(begin))
}

// ties returns the best groups of size that contain must, all equally good. There is at least one
// if there are size GPUs.
func (s *search) ties(must []int, size int, by order) (ties [][]int) {
	best := worst
	s.each(must, size, worst, func(group []int, q Quality) Quality {
		better := by.compare(q, best)
		if better > 0 {
			ties, best = ties[:0], q
		}
		if better >= 0 {
			ties = append(ties, sorted(slices.Clone(group)))
		}
		return by.floor(best)
	})
	return ties
}

// most returns the quality of the best group of size; if that is worse than floor, some worse
// quality.
func (s *search) most(size int, floor Quality) Quality {
	best := worst
	s.each(nil, size, floor, func(_ []int, q Quality) Quality {
		if q.Compare(best) > 0 {
			best = q
		}
		return best
	})
	return best
}

// best returns the best group of size that contains must.
func (s *search) best(available, must []int, size int) []int {
	if s.links.alike(available) { // no NVLinks are at stake
		return s.leaves(available, s.ties(must, size, byAll), byAll)[0]
	}
	ties := s.ties(must, size, byNVLink)
	ties = s.leaves(available, ties, byNVLink)
	ties = bestBy(ties, s.links.of, byAll) // their NVLinks are equal
	return s.leaves(available, ties, byAll)[0]
}

// leaves returns the groups that leave the most useful rest. It judges by the best remaining group
// for others, the largest size first, and then by the sum of the rest's links, however weak a
// single pair is.
func (s *search) leaves(available []int, groups [][]int, by order) [][]int {
	slices.SortFunc(groups, slices.Compare)
	for _, size := range laterSizes {
		if size <= len(available)-len(groups[0]) {
			groups = s.leaving(available, groups, size, by)
		}
	}
	groups = bestBy(groups, func(group []int) Quality {
		return s.then(without(available, group))
	}, by)
	return bestBy(groups, func(group []int) Quality {
		whole := s.links.of(without(available, group))
		whole.Weakest, whole.Longest = 0, 0
		return whole
	}, by)
}

// leaving returns the groups that leave the best group of a size. It either finds that group once
// for all, or the best of each rest, whichever looks at fewer groups.
func (s *search) leaving(available []int, groups [][]int, size int, by order) [][]int {
	first := s.rest(available, groups[0])
	switch {
	case len(groups) == 1 || s.tried > maxTried:
		return groups
	case len(groups)*first.groups(size) > s.groups(size):
		return s.disjoint(groups, size, by)
	}
	floor := worst
	return bestBy(groups, func(group []int) Quality {
		rest := s.rest(available, group)
		q := rest.most(size, floor)
		s.tried += rest.tried
		if next := by.floor(q); next.Compare(floor) > 0 {
			floor = next
		}
		return q
	}, by)
}

// rest returns a search among what a group leaves.
func (s *search) rest(available, group []int) search {
	others := without(available, group)
	return search{links: s.links, kinds: s.links.kinds(others, others)}
}

// disjoint returns the groups beside which the best group of a size is possible. These groups have
// the first GPUs of each kind, the other group is built from the last ones: so both are possible
// together if they share no GPU.
func (s *search) disjoint(groups [][]int, size int, by order) (beside [][]int) {
	taken := make([]uint64, len(groups))
	for n, group := range groups {
		taken[n] = maskOf(group)
	}
	last := search{links: s.links, kinds: make([][]int, len(s.kinds))}
	for n, kind := range s.kinds {
		last.kinds[n] = slices.Clone(kind)
		slices.Reverse(last.kinds[n])
	}
	best := worst
	var ties []uint64
	apart := func(from []uint64, mask uint64) bool {
		at := slices.IndexFunc(from, func(other uint64) bool { return other&mask == 0 })
		s.tried += max(at, 0)
		return at >= 0
	}
	last.each(nil, size, worst, func(group []int, q Quality) Quality {
		better, mask := by.compare(q, best), maskOf(group)
		switch {
		case better == 0 && ties != nil:
			ties = append(ties, mask)
		case better >= 0 && apart(taken, mask):
			ties, best = append(ties[:0], mask), q
		}
		return by.floor(best)
	})
	s.tried += last.tried
	for n, group := range groups {
		if s.tried > maxTried && beside != nil {
			break
		}
		if apart(ties, taken[n]) {
			beside = append(beside, group)
		}
	}
	return beside
}

func maskOf(group []int) (mask uint64) {
	for _, i := range group {
		mask |= 1 << i
	}
	return mask
}

// bestBy returns the groups whose quality no other exceeds.
func bestBy(groups [][]int, of func([]int) Quality, by order) (best [][]int) {
	if len(groups) == 1 {
		return groups
	}
	most := worst
	for _, group := range groups {
		got := of(group)
		better := by.compare(got, most)
		if better > 0 {
			best, most = nil, got
		}
		if better >= 0 {
			best = append(best, group)
		}
	}
	return best
}

// then returns the quality of the best group of four among others after a best pair was taken, if
// that is at stake; else zero.
func (s *search) then(others []int) (best Quality) {
	if len(others) > mesh || len(others) < 2+4 || s.links.alike(others) {
		return best
	}
	pairs := search{links: s.links, kinds: s.links.kinds(others, others)}
	for n, pair := range pairs.ties(nil, 2, byNVLink) {
		fours := pairs.rest(others, pair)
		if four := fours.most(4, worst); n == 0 || four.Compare(best) > 0 {
			best = four
		}
	}
	return best
}

func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all),
		func(i int) bool { return slices.Contains(some, i) })
}

// grow builds a group from each GPU by adding the best fit again and again, and returns the best
// group.
func (l Links) grow(available, must []int, size int) (best []int) {
	var most Quality
	for _, first := range available {
		group := sorted(append(slices.Clone(must), first))
		if len(group) > size {
			group = slices.Clone(must)
		}
		q := l.of(group)
		for len(group) < size {
			next, with := -1, Quality{}
			for _, i := range available {
				if slices.Contains(group, i) {
					continue
				}
				if joined := l.joined(q, group, i); next < 0 || joined.Compare(with) > 0 {
					next, with = i, joined
				}
			}
			group, q = append(group, next), with
		}
		if best == nil || q.Compare(most) > 0 {
			best, most = sorted(group), q
		}
	}
	return best
}
