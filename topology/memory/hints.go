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
// first, then those with the lower value as a binary number. If they are too many to list all,
// there is one around the given nodes, provided that any of unused nodes has room.
func (q question) offers(around topology.NodeSet) []topology.Hint {
	if len(q.wanted) == 0 {
		return nil
	}
	found := offered{q: q, seen: map[topology.NodeSet]bool{}}
	for at, p := range q.nodes {
		found.once([]int{at})
		if !p.group.IsEmpty() {
			found.once(q.positions(p.group))
		}
	}
	q.offerUnused(&found, around)
	slices.SortFunc(found.sets, func(a, b foundSet) int {
		if len(a.set) != len(b.set) {
			return len(a.set) - len(b.set)
		}
		return a.nodes.Compare(b.nodes)
	})
	narrowest := q.narrowest()
	hints := make([]topology.Hint, len(found.sets))
	for i, f := range found.sets {
		hints[i] = topology.Hint{Nodes: f.nodes, Preferred: len(f.set) == narrowest}
	}
	return hints
}

// offered collects the sets that are allowed and have room.
type offered struct {
	q     question
	sets  []foundSet
	seen  map[topology.NodeSet]bool // those offered once
	arena []int                     // holds the members of sets
}

type foundSet struct {
	set   []int
	nodes topology.NodeSet
}

// add takes a set that was not offered before. It reports whether it is one to offer.
func (o *offered) add(set []int) bool {
	nodes := o.q.nodeSet(set)
	if !o.q.allows(set, nodes) || !o.q.hasRoom(set, nodes) {
		return false
	}
	if len(o.arena)+len(set) > cap(o.arena) {
		o.arena = make([]int, 0, max(1024, len(set)))
	}
	from := len(o.arena)
	o.arena = append(o.arena, set...)
	o.sets = append(o.sets, foundSet{o.arena[from:len(o.arena):len(o.arena)], nodes})
	return true
}

// once is add for a set that may have been offered once before; then it is none to offer.
func (o *offered) once(set []int) bool {
	nodes := o.q.nodeSet(set)
	if o.seen[nodes] || !o.add(set) {
		return false
	}
	o.seen[nodes] = true
	return true
}

// offerUnused offers sets of several nodes that nobody uses: all, if they are not too many, else
// the narrow ones and, around each node, the narrowest of the roomiest.
func (q question) offerUnused(found *offered, around topology.NodeSet) {
	var unused []int
	for at, p := range q.nodes {
		if p.group.IsEmpty() {
			unused = append(unused, at)
		}
	}
	tried := 0
	width := max(2, q.atLeast())
	for ; width <= len(unused) && tried < maxSets; width++ {
		set := make([]int, width)
		topology.Combinations(len(unused), width, func(of []int) bool {
			for i, at := range of {
				set[i] = unused[at]
			}
			found.add(set)
			tried++
			return tried < maxSets
		})
	}
	if tried < maxSets {
		return
	}
	for _, f := range found.sets {
		found.seen[f.nodes] = true
	}
	byShare := q.byShare(unused)
	cores := [][]int{q.positions(around)}
	for _, at := range unused {
		cores = append(cores, []int{at})
	}
	for _, core := range cores {
		for w := max(width-1, len(core)); w <= len(unused); w++ { // the last width may be cut short
			if found.once(roomiest(byShare, core, w)) {
				break
			}
		}
	}
}

// allows reports whether the nodes may be used together: a node that is used alone joins no group,
// and one in a group is used with all others of the group only. nodes is the set once more.
func (q question) allows(set []int, nodes topology.NodeSet) bool {
	for _, at := range set {
		p := q.nodes[at]
		if p.mixed || !p.group.IsEmpty() && p.group != nodes {
			return false
		}
	}
	return true
}

// hasRoom reports whether the nodes have all that is wanted free, or reusable by the pod. nodes is
// the set once more.
func (q question) hasRoom(set []int, nodes topology.NodeSet) bool {
	var reuse []uint64
	if len(q.reuse) > 0 {
		reuse = q.reuse[nodes]
	}
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

// roomiest is the core and the first of the other nodes, width in all.
func roomiest(byShare, core []int, width int) []int {
	set := slices.Clone(core)
	for _, at := range byShare {
		if len(set) >= width {
			break
		}
		if !slices.Contains(core, at) {
			set = append(set, at)
		}
	}
	slices.Sort(set)
	return set
}

// byShare is the nodes, those first that have most free.
func (q question) byShare(nodes []int) []int {
	shares := make([]float64, len(q.nodes))
	for _, at := range nodes {
		shares[at] = q.share(at)
	}
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(shares[b], shares[a]) })
	return sorted
}

// share is how much of what is wanted the node has free, a number up to 1 for each resource.
func (q question) share(at int) (share float64) {
	for r, wanted := range q.wanted {
		share += float64(min(q.nodes[at].free[r], wanted)) / float64(max(wanted, 1))
	}
	return share
}

func (q question) nodeSet(set []int) (nodes topology.NodeSet) {
	for _, at := range set {
		nodes = nodes.Union(topology.NewNodeSet(q.nodes[at].id))
	}
	return nodes
}

func (q question) positions(nodes topology.NodeSet) (set []int) {
	for at, p := range q.nodes {
		if nodes.Has(p.id) {
			set = append(set, at)
		}
	}
	return set
}
