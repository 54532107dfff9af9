package memory

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// maxSets limits how many sets of nodes are tried one by one: all of 11 nodes, all pairs of 64.
const maxSets = 2048

// Hints lists the node sets from which all the requests can be met while others hold the held
// blocks, as doc.go describes: for each resource, by name, the same sets in the same order,
// narrow ones first. It is nil if nothing is requested, and also if no set has room: like the
// kubelet, it leaves it to Choose to say so.
//
// Reusable are the blocks of init containers of the same pod that will have ended; they are not
// among the held ones.
func (s *Static) Hints(held, reusable []Block,
	requests map[v1.ResourceName]uint64) []topology.ResourceHints {
	return spread(s.question(held, reusable, requests).offers(topology.NodeSet{}), requests)
}

// Again repeats the hints of a container that holds its blocks already. It is nil, no preference,
// if they are not what is requested.
func Again(blocks []Block, requests map[v1.ResourceName]uint64) []topology.ResourceHints {
	if len(blocks) != len(requests) {
		return nil
	}
	var out []topology.ResourceHints
	for _, b := range blocks {
		if size, ok := requests[b.Resource]; !ok || size != b.Size {
			return nil
		}
		out = append(out, topology.ResourceHints{
			Resource: string(b.Resource), Hints: []topology.Hint{{Nodes: b.Nodes, Preferred: true}},
		})
	}
	slices.SortFunc(out, func(a, b topology.ResourceHints) int {
		return cmp.Compare(a.Resource, b.Resource)
	})
	return out
}

func spread(hints []topology.Hint, requests map[v1.ResourceName]uint64) []topology.ResourceHints {
	if len(hints) == 0 {
		return nil
	}
	var out []topology.ResourceHints
	for _, name := range sortedKeys(requests) {
		out = append(out, topology.ResourceHints{
			Resource: string(name), Hints: slices.Clone(hints),
		})
	}
	return out
}

// question is a request on a machine in use. Sets of nodes are ascending positions in nodes.
type question struct {
	wanted []uint64 // by resource
	nodes  []place  // those that have any memory, ascending
	reuse  map[topology.NodeSet][]uint64
}

// place is one node in a question; sizes are by resource.
type place struct {
	id          topology.NodeID
	allocatable []uint64
	free        []uint64
	group       topology.NodeSet // of the blocks on the node; empty: there is none
	mixed       bool             // the blocks disagree on the group, which only foreign ones do
}

func (s *Static) question(held, reusable []Block, requests map[v1.ResourceName]uint64) question {
	names := sortedKeys(requests)
	q := question{reuse: map[topology.NodeSet][]uint64{}}
	for _, name := range names {
		q.wanted = append(q.wanted, requests[name])
	}
	all := slices.Concat(held, reusable)
	for i, u := range s.Usage(all) {
		if !s.backed.Has(u.Node) {
			continue
		}
		p := place{id: u.Node}
		for _, name := range names {
			p.allocatable = append(p.allocatable, s.nodes[i].allocatable[name])
			p.free = append(p.free, u.Free[name])
		}
		for _, b := range all {
			nodes := b.Nodes.Intersect(s.backed)
			if !nodes.Has(p.id) {
				continue
			}
			p.mixed = p.mixed || !p.group.IsEmpty() && p.group != nodes
			p.group = nodes
		}
		q.nodes = append(q.nodes, p)
	}
	for _, b := range reusable {
		at, ok := slices.BinarySearch(names, b.Resource)
		if !ok {
			continue
		}
		nodes := b.Nodes.Intersect(s.backed)
		if q.reuse[nodes] == nil {
			q.reuse[nodes] = make([]uint64, len(names))
		}
		q.reuse[nodes][at] += b.Size
	}
	return q
}

// offers lists the sets that are allowed and have room, the preferred ones marked; narrow ones
// first, then in lexicographic order. If they are too many to list all, there is one around the
// given nodes, provided that any of unused nodes has room.
func (q question) offers(around topology.NodeSet) []topology.Hint {
	if len(q.wanted) == 0 {
		return nil
	}
	var found [][]int
	seen := map[topology.NodeSet]bool{}
	offer := func(set []int) bool {
		nodes := q.nodeSet(set)
		ok := !seen[nodes] && q.allows(set) && q.hasRoom(set)
		if ok {
			seen[nodes] = true
			found = append(found, slices.Clone(set))
		}
		return ok
	}
	for at, p := range q.nodes {
		offer([]int{at})
		if !p.group.IsEmpty() {
			offer(q.positions(p.group))
		}
	}
	q.offerUnused(offer, around)
	slices.SortFunc(found, func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	narrowest := q.narrowest()
	hints := make([]topology.Hint, len(found))
	for i, set := range found {
		hints[i] = topology.Hint{Nodes: q.nodeSet(set), Preferred: len(set) == narrowest}
	}
	return hints
}

// offerUnused offers sets of several nodes that nobody uses: all, if they are not too many, else
// the narrow ones and, around each node, the narrowest of the roomiest.
func (q question) offerUnused(offer func([]int) bool, around topology.NodeSet) {
	var unused []int
	for at, p := range q.nodes {
		if p.group.IsEmpty() {
			unused = append(unused, at)
		}
	}
	tried := 0
	width := max(2, q.atLeast())
	for ; width <= len(unused) && tried < maxSets; width++ {
		topology.Combinations(len(unused), width, func(of []int) bool {
			offer(pick(unused, of))
			tried++
			return tried < maxSets
		})
	}
	if tried < maxSets {
		return
	}
	cores := [][]int{q.positions(around)}
	for _, at := range unused {
		cores = append(cores, []int{at})
	}
	for _, core := range cores {
		for w := max(width-1, len(core)); w <= len(unused); w++ { // the last width may be cut short
			if offer(q.roomiest(unused, core, w)) {
				break
			}
		}
	}
}

// allows tells whether the nodes may be used together: a node that is used alone joins no group,
// and one in a group is used with all others of the group only.
func (q question) allows(set []int) bool {
	nodes := q.nodeSet(set)
	for _, at := range set {
		p := q.nodes[at]
		if p.mixed || !p.group.IsEmpty() && p.group != nodes {
			return false
		}
	}
	return true
}

// hasRoom tells whether the nodes have all that is wanted free, or reusable by the pod.
func (q question) hasRoom(set []int) bool {
	reuse := q.reuse[q.nodeSet(set)]
	for r, wanted := range q.wanted {
		sum := uint64(0)
		if reuse != nil {
			sum = reuse[r]
		}
		for _, at := range set {
			sum += q.nodes[at].free[r]
		}
		if sum < wanted {
			return false
		}
	}
	return true
}

// couldHold is hasRoom on the empty machine.
func (q question) couldHold(set []int) bool {
	for r, wanted := range q.wanted {
		sum := uint64(0)
		for _, at := range set {
			sum += q.nodes[at].allocatable[r]
		}
		if sum < wanted {
			return false
		}
	}
	return true
}

// atLeast is a number of nodes below which no set could hold what is wanted.
func (q question) atLeast() int {
	most := 1
	for r, wanted := range q.wanted {
		sizes := make([]uint64, len(q.nodes))
		for at, p := range q.nodes {
			sizes[at] = p.allocatable[r]
		}
		slices.Sort(sizes)
		n, sum := 0, uint64(0)
		for n < len(sizes) && sum < wanted {
			n++
			sum += sizes[len(sizes)-n]
		}
		most = max(most, n)
	}
	return most
}

// narrowest is the number of nodes that what is wanted needs on the empty machine. Where several
// resources are on different nodes and the sets too many to try, it can be too low: then no
// hint is preferred.
func (q question) narrowest() int {
	tried := 0
	width := q.atLeast()
	for ; width < len(q.nodes); width++ {
		held := false
		topology.Combinations(len(q.nodes), width, func(set []int) bool {
			held = q.couldHold(set)
			tried++
			return !held && tried < maxSets
		})
		if held || tried >= maxSets {
			break
		}
	}
	return width
}

// roomiest is the core and those of the other nodes that have most free, width in all.
func (q question) roomiest(nodes, core []int, width int) []int {
	others := slices.DeleteFunc(slices.Clone(nodes), func(at int) bool {
		return slices.Contains(core, at)
	})
	slices.SortStableFunc(others, func(a, b int) int {
		return cmp.Compare(q.share(b), q.share(a))
	})
	set := slices.Concat(core, others[:min(width-len(core), len(others))])
	slices.Sort(set)
	return set
}

// share is how much of what is wanted the node has free, a number up to 1 for each resource.
func (q question) share(at int) (share float64) {
	for r, wanted := range q.wanted {
		share += float64(min(q.nodes[at].free[r], wanted)) / float64(max(wanted, 1))
	}
	return share
}

func (q question) nodeSet(set []int) topology.NodeSet {
	ids := make([]topology.NodeID, len(set))
	for i, at := range set {
		ids[i] = q.nodes[at].id
	}
	return topology.NewNodeSet(ids...)
}

func (q question) positions(nodes topology.NodeSet) (set []int) {
	for at, p := range q.nodes {
		if nodes.Has(p.id) {
			set = append(set, at)
		}
	}
	return set
}

func pick(from, which []int) []int {
	out := make([]int, len(which))
	for i, at := range which {
		out[i] = from[at]
	}
	return out
}
