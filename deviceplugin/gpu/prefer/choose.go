package prefer

import (
	"cmp"
	"slices"
)

const (
	// maxGroups bounds how many groups of one size are tried; 16 GPUs that all differ have 12,870.
	maxGroups = 1 << 14
	// maxTried bounds how many are looked at in all. What others that tie would leave is not looked
	// at after that.
	maxTried = 1 << 20
)

// mesh is how many GPUs are joined by NVLinks without switches, at most. Only there can a pair that
// is as good as another spoil all groups of four.
const mesh = 8

// laterSizes are the groups that others may ask for next, the largest first.
var laterSizes = [...]int{8, 4, 2}

// Choose returns the size positions of available to take, those of must among them, in ascending
// order. It returns nil where there is no such group.
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
		if s.groups(of) > maxGroups {
			return l.grow(available, must, size)
		}
	}
	return s.best(available, must, size)
}

func sorted(positions []int) []int {
	slices.Sort(positions)
	return slices.Compact(positions)
}

// kinds sorts the GPUs of group into those that are interchangeable: both have the same link to
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

// search tries groups. Of each kind the first ones are taken.
type search struct {
	links Links
	kinds [][]int
	tried int // groups looked at, for tests
}

// groups is how many different groups of a size there are, or more than maxGroups.
func (s *search) groups(size int) int {
	ways := make([]int, size+1) // ways to take that many of the kinds so far
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

// each calls f with every different group of size that has begin in it, and with its quality, but
// for those whose NVLinks are worse than those of floor, or of the best that f has seen, which it
// returns. The slice is f's for the call only.
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
			if best := f(group, q); best.CompareNVLink(floor) > 0 {
				floor = best
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

// order compares two groups of the same size.
type order func(a, b Quality) int

// ties are the different groups of size, with must in them, that no other is better than. There is
// one if there are size GPUs.
func (s *search) ties(must []int, size int, by order) (ties [][]int) {
	var best Quality
	s.each(must, size, Quality{}, func(group []int, q Quality) Quality {
		better := 1
		if len(ties) > 0 {
			better = by(q, best)
		}
		if better > 0 {
			ties, best = ties[:0], q
		}
		if better >= 0 {
			ties = append(ties, sorted(slices.Clone(group)))
		}
		return best
	})
	return ties
}

// most is how good the best group of size is. Where its NVLinks are worse than those of floor it is
// some quality of worse ones.
func (s *search) most(size int, floor Quality) (best Quality) {
	found := false
	s.each(nil, size, floor, func(_ []int, q Quality) Quality {
		if !found || q.Compare(best) > 0 {
			best, found = q, true
		}
		return best
	})
	return best
}

// best is the best group of size with must in it.
func (s *search) best(available, must []int, size int) []int {
	if s.links.alike(available) { // then nobody's NVLinks are at stake
		return s.leaves(available, s.ties(must, size, Quality.Compare), rest.compare)[0]
	}
	ties := s.ties(must, size, Quality.CompareNVLink)
	ties = s.leaves(available, ties, rest.compareNVLink)
	ties = bestBy(ties, func(group []int, _ Quality) Quality { return s.links.of(group) },
		Quality.ComparePaths)
	return s.leaves(available, ties, rest.compare)[0]
}

// leaves are the groups that leave the most useful rest, in order.
func (s *search) leaves(available []int, groups [][]int, by func(a, b rest) int) [][]int {
	slices.SortFunc(groups, slices.Compare)
	return bestBy(groups, func(group []int, most rest) rest {
		if s.tried > maxTried {
			return rest{unseen: true}
		}
		return s.left(available, group, most)
	}, by)
}

// bestBy are the groups of which none is better in something. of is told the best so far, zero at
// first.
func bestBy[T any](groups [][]int, of func([]int, T) T, by func(a, b T) int) (best [][]int) {
	if len(groups) == 1 {
		return groups
	}
	var most T
	for _, group := range groups {
		got, better := of(group, most), 1
		if best != nil {
			better = by(got, most)
		}
		if better > 0 {
			best, most = nil, got
		}
		if better >= 0 {
			best = append(best, group)
		}
	}
	return best
}

// rest says how useful the GPUs are that a group leaves.
type rest struct {
	groups [len(laterSizes)]Quality // the best group of each size; zero where there is none
	// then is the best group of four once a best pair has been taken too.
	then   Quality
	whole  Quality
	unseen bool
}

func (r rest) compare(o rest) int {
	return r.compareBy(o, Quality.Compare)
}

func (r rest) compareNVLink(o rest) int {
	return r.compareBy(o, Quality.CompareNVLink)
}

func (r rest) compareBy(o rest, by order) int {
	switch {
	case r.unseen:
		return -1
	case o.unseen:
		return 1
	}
	for n, q := range r.groups {
		if better := by(q, o.groups[n]); better != 0 {
			return better
		}
	}
	// What the rest has in common is the more the better, however weak a single pair is.
	r.whole.Weakest, r.whole.Longest = 0, 0
	o.whole.Weakest, o.whole.Longest = 0, 0
	return cmp.Or(by(r.then, o.then), by(r.whole, o.whole))
}

// left is what a group leaves. Of what has worse NVLinks than most, no more than that is told.
func (s *search) left(available, group []int, most rest) (out rest) {
	others := without(available, group)
	out.whole = s.links.of(others)
	after := search{links: s.links, kinds: s.links.kinds(others, others)}
	for n, size := range laterSizes {
		if size > len(others) {
			continue
		}
		out.groups[n] = after.most(size, most.groups[n])
		switch better := out.groups[n].CompareNVLink(most.groups[n]); {
		case better > 0:
			most = rest{} // the others do not decide
		case better < 0:
			s.tried += after.tried
			return out
		}
	}
	if !s.links.alike(others) && len(others) <= mesh && len(others) >= 2+4 {
		for n, pair := range after.ties(nil, 2, Quality.CompareNVLink) {
			four := s.four(without(others, pair))
			if n == 0 || four.Compare(out.then) > 0 {
				out.then = four
			}
		}
	}
	s.tried += after.tried
	return out
}

// four is how good the best four of these are.
func (s *search) four(of []int) Quality {
	four := search{links: s.links, kinds: s.links.kinds(of, of)}
	return four.most(4, Quality{})
}

func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all),
		func(i int) bool { return slices.Contains(some, i) })
}

// grow makes a group of each GPU by adding the one that fits best, again and again, and returns the
// best of them.
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
