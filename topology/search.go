package topology

import (
	"cmp"
	"math"
	"slices"
)

// searchSteps limits each of the two parts of a search. A step looks at one set, or at 64 of a list
// together; the limit is about a millisecond. Up to EverySet nodes the search ends by itself: a
// list has at most 255 sets, and as many can be met after each list.
const searchSteps = 1 << 17

// search finds the best node set shared by picks of one hint per list; doc.go explains how.
type search struct {
	order order
	lists []nodeSets // the shortest first
	// found is the best answer so far; its set is empty until there is one.
	found rank
	// seen holds the sets whose subsets were looked at, by the number of lists picked before.
	seen  []map[NodeSet]struct{}
	steps int      // left
	ids   []NodeID // scratch space of covered
}

// nodeSets holds the node sets of one list of hints, restricted to nodes that all other lists name.
type nodeSets struct {
	sets []NodeSet // distinct, ascending, none empty
	// holders has, for each node id, a bit for each set that contains the node.
	holders [][]uint64
}

// bestShared returns the best node set, by the order, that picks of one hint per list share; empty
// if there is none. On a large machine the search may end early with the best set so far.
func bestShared(o order, nodes NodeSet, lists [][]Hint) NodeSet {
	live := nodes
	for _, list := range lists {
		live = live.Intersect(reach(nodes, list))
	}
	if live.IsEmpty() {
		return live
	}
	limit := searchSteps
	if live.Len() <= EverySet {
		limit = math.MaxInt
	}
	s := &search{order: o}
	for _, list := range lists {
		s.lists = append(s.lists, newNodeSets(live, list))
		s.seen = append(s.seen, map[NodeSet]struct{}{})
	}
	slices.SortFunc(s.lists, func(a, b nodeSets) int {
		return cmp.Or(cmp.Compare(len(a.sets), len(b.sets)),
			slices.CompareFunc(a.sets, b.sets, NodeSet.Compare))
	})
	s.steps = limit
	s.offerHints()
	s.steps = limit
	s.visit(0, live)
	return s.found.set
}

// reach returns the nodes that a list of hints names.
func reach(nodes NodeSet, list []Hint) NodeSet {
	var all NodeSet
	for _, h := range list {
		if h.Any {
			return nodes
		}
		all = all.Union(h.Nodes)
	}
	return all
}

func newNodeSets(live NodeSet, list []Hint) nodeSets {
	l := nodeSets{sets: make([]NodeSet, 0, len(list))}
	for _, h := range list {
		set := live
		if !h.Any {
			set = live.Intersect(h.Nodes)
		}
		if !set.IsEmpty() {
			l.sets = append(l.sets, set)
		}
	}
	sortSets(l.sets)
	l.sets = slices.Compact(l.sets)
	words := (len(l.sets) + 63) / 64
	for _, id := range live.IDs() {
		for len(l.holders) <= int(id) {
			l.holders = append(l.holders, nil)
		}
		l.holders[id] = make([]uint64, words)
	}
	var ids []NodeID
	for i, set := range l.sets {
		ids = set.appendIDs(ids[:0])
		for _, id := range ids {
			l.holders[id][i/64] |= 1 << (i % 64)
		}
	}
	return l
}

// sortSets sorts by value, with a fast path for machines of up to 64 nodes.
func sortSets(sets []NodeSet) {
	words := make([]uint64, len(sets))
	for i, set := range sets {
		if set.high != "" {
			slices.SortFunc(sets, NodeSet.Compare)
			return
		}
		words[i] = set.low
	}
	slices.Sort(words)
	for i, word := range words {
		sets[i] = NodeSet{low: word}
	}
}

// covers reports whether one of the sets contains all the nodes; there must be at least one node.
func (l nodeSets) covers(nodes []NodeID) bool {
	for word := range l.holders[nodes[0]] {
		common := ^uint64(0)
		for _, id := range nodes {
			if common &= l.holders[id][word]; common == 0 {
				break
			}
		}
		if common != 0 {
			return true
		}
	}
	return false
}

// covered reports whether each of the lists has a set that contains this one.
func (s *search) covered(lists []nodeSets, set NodeSet) bool {
	nodes := set.appendIDs(s.ids[:0])
	s.ids = nodes
	for _, l := range lists {
		s.steps -= min(len(nodes), 8) * len(l.sets) / 64 // more nodes rarely share a set
		if !l.covers(nodes) {
			return false
		}
	}
	return true
}

// offerHints finds the best answer that is a hint of one list and covered by the others.
func (s *search) offerHints() {
	for i, l := range s.lists {
		for _, set := range l.sets {
			if s.steps > 0 && s.rivals(set) &&
				s.covered(s.lists[:i], set) && s.covered(s.lists[i+1:], set) {
				s.found = s.order.rank(set)
			}
		}
	}
}

// rivals reports whether set is a better answer than the one found.
func (s *search) rivals(set NodeSet) bool {
	if away := s.order.away(set.Len()); !s.found.set.IsEmpty() && away != s.found.away {
		return away < s.found.away // distances take longer
	}
	return s.found.set.IsEmpty() || s.order.rank(set).compare(s.found) < 0
}

// mayImprove reports whether subsets of set with at most this many nodes may be better than the
// answer found.
func (s *search) mayImprove(set NodeSet, nodes int) bool {
	return s.found.set.IsEmpty() || s.order.mayBeat(s.found, set, nodes)
}

// visit looks for better answers among the subsets of set, which picks from the first picked lists
// share.
func (s *search) visit(picked int, set NodeSet) {
	width, rest := set.Len(), s.lists[picked:]
	if width == 0 {
		return
	}
	if len(rest) == 0 {
		if s.rivals(set) {
			s.found = s.order.rank(set)
		}
		return
	}
	if !s.mayImprove(set, width) {
		return
	}
	if s.order.distances != nil {
		s.steps -= width * width / 64
	}
	if width <= s.order.width {
		if s.covered(rest, set) { // all its subsets are worse
			s.found = s.order.rank(set)
			return
		}
		if !s.mayImprove(set, width-1) {
			return
		}
	}
	if _, again := s.seen[picked][set]; again {
		return
	}
	s.seen[picked][set] = struct{}{}
	s.steps -= 2 * len(rest[0].sets)
	s.visit(picked+1, s.bestPart(rest[0], set))
	for _, cut := range rest[0].sets {
		if s.steps <= 0 {
			return
		}
		s.visit(picked+1, set.Intersect(cut))
	}
}

// bestPart returns the part of set within one of l's sets whose subsets may hold the best answer.
func (s *search) bestPart(l nodeSets, set NodeSet) NodeSet {
	var part NodeSet
	var first rank
	for _, cut := range l.sets {
		both := set.Intersect(cut)
		if both.IsEmpty() {
			continue
		}
		if width := both.Len(); part.IsEmpty() || s.order.mayBeat(first, both, width) {
			first, part = s.order.bound(both, width), both
		}
	}
	return part
}
