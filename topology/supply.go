package topology

import (
	"cmp"
	"slices"
)

// EverySet is the number of nodes up to which every set of nodes, and every way to merge hints, is
// looked at. It is the kubelet's limit for alignment: up to here the answers are the kubelet's.
const EverySet = 8

// maxSets bounds the sets of nodes looked at one by one: all of 11 nodes, all pairs of 64.
const maxSets = 2048

// Supply describes the sets of nodes from which one request can be met. A provider says here what
// it knows of a set; only this package decides which sets exist and which of them to look at.
type Supply struct {
	// Nodes are the usable nodes, in ascending order. Sets of them are also given as ascending
	// positions in it.
	Nodes []NodeID
	// Must are nodes that every set contains.
	Must NodeSet
	// Amounts are needed of a set, of one resource or several.
	Amounts []Amount
	// Holds reports whether a set that contains Must has room.
	Holds func(set NodeSet, at []int) bool
	// Least is a lower bound for the number of nodes of a set with room.
	Least int
	// Sets have room too; they may have nodes that are not in Nodes.
	Sets []NodeSet
	// Width is the number of nodes of a preferred set, unless Prefers is set.
	Width   int
	Prefers func(NodeSet) bool
	// NarrowOnly: if a set has room, wider ones need not be listed.
	NarrowOnly bool
	// Additive: Holds only asks whether the nodes of a set together have the amounts.
	Additive bool
}

// Amount says how much of a resource is wanted, and how much of it each of Supply.Nodes can give.
type Amount struct {
	Wanted uint64
	Free   []uint64
}

// Hints lists the sets that have room, narrow ones first, then those with the lower value as a
// binary number. If there are too many sets to look at each, it lists the first narrow ones and,
// around each node and each of the given sets, the narrowest set with room that is built from the
// nodes with the most free.
func (s Supply) Hints(around ...NodeSet) []Hint {
	hints, width, all := s.narrow()
	further := s.Sets
	if !all {
		further = append(slices.Clone(further), s.around(width, around)...)
	}
	for _, set := range further {
		if !s.Must.SubsetOf(set) {
			continue
		}
		if at, known := slices.BinarySearchFunc(hints, set, byWidth); !known {
			hints = slices.Insert(hints, at, Hint{Nodes: set})
		}
	}
	for i := range hints {
		hints[i].Preferred = s.prefers(hints[i].Nodes)
	}
	return hints
}

func byWidth(h Hint, set NodeSet) int {
	return cmp.Or(cmp.Compare(h.Nodes.Len(), set.Len()), h.Nodes.Compare(set))
}

func (s Supply) prefers(set NodeSet) bool {
	if s.Prefers != nil {
		return s.Prefers(set)
	}
	return set.Len() == s.Width
}

// narrow lists the sets that have room by their number of nodes, until it has looked at too many:
// then all is false, and sets of width nodes and more may be missing.
func (s Supply) narrow() (hints []Hint, width int, all bool) {
	if !s.Must.SubsetOf(NewNodeSet(s.Nodes...)) {
		return []Hint{}, 0, true
	}
	hints = make([]Hint, 0, min(maxSets, 1<<min(len(s.Nodes), EverySet)))
	sets, tried := enumerate(s.Nodes), 0
	for width = max(1, s.Least, s.Must.Len()); width <= len(s.Nodes); width++ {
		narrower := len(hints)
		complete := tried+Choices(len(s.Nodes), width, maxSets) < maxSets
		sets.each(width, complete, func(set NodeSet, at []int) bool {
			if s.Must.SubsetOf(set) && s.Holds(set, at) {
				hints = append(hints, Hint{Nodes: set})
			}
			tried++
			return tried < maxSets
		})
		if !complete {
			slices.SortFunc(hints[narrower:], func(a, b Hint) int { return a.Nodes.Compare(b.Nodes) })
			return hints, width, false
		}
		slices.Reverse(hints[narrower:])
		if s.NarrowOnly && len(hints) > 0 {
			break
		}
	}
	return hints, width, true
}

// enumeration goes through the sets of some nodes. All fields but single are scratch space.
type enumeration struct {
	single     []NodeSet // one set per node
	chosen, at []int
	// prefix[i] is the set of the first i chosen nodes: little changes from one choice to the next.
	prefix []NodeSet
}

func enumerate(nodes []NodeID) *enumeration {
	e := &enumeration{
		single: make([]NodeSet, len(nodes)), prefix: make([]NodeSet, len(nodes)+1),
		chosen: make([]int, len(nodes)), at: make([]int, len(nodes)),
	}
	for i, id := range nodes {
		e.single[i] = NewNodeSet(id)
	}
	return e
}

// each visits the sets of width nodes until visit returns false: from the first nodes on, or
// backwards from the set with the highest value as a binary number. The positions are only valid
// during the call.
func (e *enumeration) each(width int, backwards bool, visit func(set NodeSet, at []int) bool) {
	for i := range width {
		e.chosen[i] = -1
	}
	Combinations(len(e.single), width, func(choice []int) bool {
		same := 0
		for same < width && e.chosen[same] == choice[same] {
			same++
		}
		for i := same; i < width; i++ {
			e.chosen[i] = choice[i]
			node, at := choice[i], i
			if backwards {
				node, at = len(e.single)-1-node, width-1-i
			}
			e.at[at] = node
			e.prefix[i+1] = e.prefix[i].Union(e.single[node])
		}
		return visit(e.prefix[width], e.at[:width])
	})
}

// around returns, for each node and each of sets, the narrowest set with room, of at least width
// nodes, that contains it and the roomiest others.
func (s Supply) around(width int, sets []NodeSet) (found []NodeSet) {
	all, roomiest := NewNodeSet(s.Nodes...), make([]int, len(s.Nodes))
	for i := range roomiest {
		roomiest[i] = i
	}
	slices.SortStableFunc(roomiest, func(a, b int) int { return cmp.Compare(s.share(b), s.share(a)) })
	for _, id := range s.Nodes {
		sets = append(sets, NewNodeSet(id))
	}
	for _, core := range sets {
		core = core.Union(s.Must)
		for w := max(width, core.Len()); w <= len(s.Nodes) && core.SubsetOf(all); w++ {
			set, left := core, w-core.Len()
			for _, i := range roomiest {
				if left > 0 && !core.Has(s.Nodes[i]) {
					set, left = set.Union(NewNodeSet(s.Nodes[i])), left-1
				}
			}
			if at, _ := s.positions(set); s.Holds(set, at) {
				found = append(found, set)
				break
			}
		}
	}
	return found
}

// share returns a node's free part of what is wanted, at most 1 for each amount.
func (s Supply) share(at int) (share float64) {
	for _, a := range s.Amounts {
		share += float64(min(a.Free[at], a.Wanted)) / float64(max(a.Wanted, 1))
	}
	return share
}

// positions returns the positions of the nodes; false if one is not in Nodes.
func (s Supply) positions(set NodeSet) (at []int, ok bool) {
	for _, id := range set.IDs() {
		i, known := slices.BinarySearch(s.Nodes, id)
		if !known {
			return nil, false
		}
		at = append(at, i)
	}
	return at, true
}

// serves reports whether the set is preferred and has room.
func (s Supply) serves(set NodeSet) bool {
	if set.Len() < s.Least || !s.Must.SubsetOf(set) || !s.prefers(set) {
		return false
	}
	at, ok := s.positions(set)
	return ok && s.Holds(set, at) || slices.Contains(s.Sets, set)
}

// Fewest returns how many of the sizes, largest first, add up to wanted; all if they do not.
func Fewest[N int | uint64](sizes []N, wanted N) (count int) {
	ascending, sum := slices.Sorted(slices.Values(sizes)), N(0)
	for count < len(sizes) && sum < wanted {
		count++
		sum += ascending[len(sizes)-count]
	}
	return count
}

// Narrowest returns the least number of nodes, between from and to, at which some set out of n
// holds a request, or else to. If there are too many sets to look at, it returns where it gave up,
// and sure is false.
func Narrowest(n, from, to int, holds func(at []int) bool) (width int, sure bool) {
	tried := 0
	for width = from; width < to; width++ {
		found := false
		Combinations(n, width, func(at []int) bool {
			found = holds(at)
			tried++
			return !found && tried < maxSets
		})
		if found || tried >= maxSets {
			return width, found
		}
	}
	return width, true
}
