package topology

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
)

// NodeSet is an immutable set of NUMA node ids of any size. It is comparable with == and usable
// as a map key: equal sets have equal representations. The zero value is the empty set.
type NodeSet struct {
	low  uint64 // nodes 0 to 63
	high string // nodes from 64 up, big-endian words, no leading zero word
}

// NewNodeSet returns the set of the given ids. It ignores negative ids, which mean "unknown" in
// sysfs.
func NewNodeSet(ids ...NodeID) NodeSet {
	low := uint64(0)
	for _, id := range ids {
		if id >= 64 {
			return newHighNodeSet(ids)
		}
		if id >= 0 {
			low |= 1 << uint(id)
		}
	}
	return NodeSet{low: low}
}

func newHighNodeSet(ids []NodeID) NodeSet {
	var b nodeBits
	for _, id := range ids {
		if id >= 0 {
			b.set(int(id))
		}
	}
	return b.freeze()
}

// ParseNodeSet reads the kernel's list syntax ("0-3,8"). Empty input gives the empty set.
func ParseNodeSet(s string) (NodeSet, error) {
	set, err := ParseCPUs(strings.TrimSpace(s))
	if err != nil {
		return NodeSet{}, fmt.Errorf("parse node list %q: %w", s, err)
	}
	var b nodeBits
	for _, id := range set.UnsortedList() {
		b.set(id)
	}
	return b.freeze(), nil
}

// String returns the set in the kernel's list syntax, "" if it is empty.
func (s NodeSet) String() string {
	ids := s.IDs()
	plain := make([]int, len(ids))
	for i, id := range ids {
		plain[i] = int(id)
	}
	return cpuset.New(plain...).String()
}

// IDs lists the members in ascending order.
func (s NodeSet) IDs() []NodeID { return s.appendIDs(make([]NodeID, 0, s.Len())) }

func (s NodeSet) appendIDs(ids []NodeID) []NodeID {
	for word := s.low; word != 0; word &= word - 1 {
		ids = append(ids, NodeID(bits.TrailingZeros64(word)))
	}
	for i := range len(s.high) {
		for b := s.high[len(s.high)-1-i]; b != 0; b &= b - 1 {
			ids = append(ids, NodeID(64+8*i+bits.TrailingZeros8(b)))
		}
	}
	return ids
}

// Len returns the number of members.
func (s NodeSet) Len() int {
	n := bits.OnesCount64(s.low)
	for i := range len(s.high) {
		n += bits.OnesCount8(s.high[i])
	}
	return n
}

// IsEmpty reports whether the set has no members.
func (s NodeSet) IsEmpty() bool { return s.low == 0 && s.high == "" }

// Has reports whether id is a member.
func (s NodeSet) Has(id NodeID) bool {
	if id < 0 {
		return false
	}
	if id < 64 {
		return s.low&(1<<uint(id)) != 0
	}
	words := s.words()
	w := int(id) / 64
	return w < len(words) && words[w]&(1<<(uint(id)%64)) != 0
}

// Intersect returns the common members.
func (s NodeSet) Intersect(o NodeSet) NodeSet {
	if s.high == "" || o.high == "" {
		return NodeSet{low: s.low & o.low}
	}
	return s.combine(o, func(a, b uint64) uint64 { return a & b })
}

// Union returns the members of either set.
func (s NodeSet) Union(o NodeSet) NodeSet {
	if s.high == "" && o.high == "" {
		return NodeSet{low: s.low | o.low}
	}
	return s.combine(o, func(a, b uint64) uint64 { return a | b })
}

// Minus returns the members of s that are not in o.
func (s NodeSet) Minus(o NodeSet) NodeSet {
	if s.high == "" {
		return NodeSet{low: s.low &^ o.low}
	}
	return s.combine(o, func(a, b uint64) uint64 { return a &^ b })
}

// SubsetOf reports whether every member of s is in o.
func (s NodeSet) SubsetOf(o NodeSet) bool { return s.Minus(o).IsEmpty() }

// Compare orders sets by their value as a binary number (node n is bit n): -1, 0 or 1.
// This is the order in which the kubelet breaks ties between masks of equal width.
func (s NodeSet) Compare(o NodeSet) int {
	if s.high == o.high {
		return cmp.Compare(s.low, o.low)
	}
	return cmp.Or(cmp.Compare(len(s.high), len(o.high)), strings.Compare(s.high, o.high))
}

// lowest returns the first n members.
func (s NodeSet) lowest(n int) NodeSet {
	if s.high != "" {
		ids := s.IDs()
		return NewNodeSet(ids[:min(n, len(ids))]...)
	}
	rest := s.low
	for ; n > 0; n-- {
		rest &= rest - 1
	}
	return NodeSet{low: s.low &^ rest}
}

func (s NodeSet) combine(o NodeSet, op func(a, b uint64) uint64) NodeSet {
	a, b := s.words(), o.words()
	out := make(nodeBits, max(len(a), len(b)))
	for i := range out {
		out[i] = op(at(a, i), at(b, i))
	}
	return out.freeze()
}

// words returns the set as 64-bit words, lowest nodes first, at least one word.
func (s NodeSet) words() nodeBits {
	words := make(nodeBits, 1+len(s.high)/8)
	words[0] = s.low
	for i := 1; i < len(words); i++ {
		at := len(s.high) - 8*i
		for _, c := range []byte(s.high[at : at+8]) {
			words[i] = words[i]<<8 | uint64(c)
		}
	}
	return words
}

// nodeBits is a NodeSet under construction: 64-bit words, lowest nodes first.
type nodeBits []uint64

func (b *nodeBits) set(id int) {
	for len(*b) <= id/64 {
		*b = append(*b, 0)
	}
	(*b)[id/64] |= 1 << (uint(id) % 64)
}

func (b nodeBits) freeze() NodeSet {
	for len(b) > 1 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return NodeSet{}
	}
	high := make([]byte, 0, 8*(len(b)-1))
	for _, word := range slices.Backward(b[1:]) {
		for shift := 56; shift >= 0; shift -= 8 {
			high = append(high, byte(word>>shift))
		}
	}
	return NodeSet{low: b[0], high: string(high)}
}

func at(words nodeBits, i int) uint64 {
	if i < len(words) {
		return words[i]
	}
	return 0
}
