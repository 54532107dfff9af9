package cpumanager

import (
	"math/bits"
	"slices"

	"k8s.io/utils/cpuset"
)

// bitmap is a set of CPUs of one machine: CPU i is bit i%64 of word i/64. All bitmaps of a machine
// have the same length. Methods that change a bitmap say so and are for its only owner; all others
// return new ones. Choosing works on bitmaps because a cpuset.CPUSet is a map, slower by orders of
// magnitude.
type bitmap []uint64

// mask is a part of the hardware as CPUs: the non-zero words of a bitmap. A core has one or two,
// whatever the size of the machine.
type mask []maskWord

type maskWord struct {
	at   int
	bits uint64
}

// newBitmap returns an empty set with room for the CPUs up to the highest.
func newBitmap(highest int) bitmap { return make(bitmap, highest/64+1) }

// only returns the members of b that are also in set.
func (b bitmap) only(set cpuset.CPUSet) bitmap {
	out := make(bitmap, len(b))
	for _, id := range set.UnsortedList() {
		if at := id / 64; id >= 0 && at < len(b) {
			out[at] |= b[at] & (1 << (id % 64))
		}
	}
	return out
}

func (b bitmap) cpuSet() cpuset.CPUSet { return cpuset.New(b.ids()...) }

// ids lists the CPUs, ascending.
func (b bitmap) ids() []int {
	ids := make([]int, 0, b.size())
	for at, word := range b {
		for ; word != 0; word &= word - 1 {
			ids = append(ids, at*64+bits.TrailingZeros64(word))
		}
	}
	return ids
}

func (b bitmap) mask() (m mask) {
	for at, word := range b {
		if word != 0 {
			m = append(m, maskWord{at, word})
		}
	}
	return m
}

func (b bitmap) clone() bitmap { return slices.Clone(b) }

func (b bitmap) size() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

func (b bitmap) and(o bitmap) bitmap {
	return b.combine(o, func(x, y uint64) uint64 { return x & y })
}

func (b bitmap) or(o bitmap) bitmap {
	return b.combine(o, func(x, y uint64) uint64 { return x | y })
}

func (b bitmap) minus(o bitmap) bitmap {
	return b.combine(o, func(x, y uint64) uint64 { return x &^ y })
}

func (b bitmap) combine(o bitmap, op func(x, y uint64) uint64) bitmap {
	out := make(bitmap, len(b))
	for at := range b {
		out[at] = op(b[at], o[at])
	}
	return out
}

// add changes b: it adds the CPUs of m.
func (b bitmap) add(m mask) {
	for _, w := range m {
		b[w.at] |= w.bits
	}
}

// count returns the number of CPUs of m that are in b.
func (b bitmap) count(m mask) int {
	n := 0
	for _, w := range m {
		n += bits.OnesCount64(b[w.at] & w.bits)
	}
	return n
}

// contains reports whether b has all CPUs of m.
func (b bitmap) contains(m mask) bool {
	for _, w := range m {
		if w.bits&^b[w.at] != 0 {
			return false
		}
	}
	return true
}

// move changes b and to: it moves up to limit CPUs of m, the lowest, from b to to, and returns
// their number.
func (b bitmap) move(to bitmap, m mask, limit int) int {
	left := max(limit, 0)
	for _, w := range m {
		got := b[w.at] & w.bits
		for bits.OnesCount64(got) > left {
			got &^= 1 << (bits.Len64(got) - 1)
		}
		b[w.at] &^= got
		to[w.at] |= got
		left -= bits.OnesCount64(got)
	}
	return max(limit, 0) - left
}

// within returns the members of b that are in m.
func (b bitmap) within(m mask) bitmap {
	out := make(bitmap, len(b))
	for _, w := range m {
		out[w.at] = b[w.at] & w.bits
	}
	return out
}
