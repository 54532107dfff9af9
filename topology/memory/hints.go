package memory

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// Supply describes the node sets that can meet all requests beside the held blocks, as doc.go
// describes. reusable are the blocks of init containers of the same pod that will have ended; held
// does not contain them.
func (s *Static) Supply(held, reusable []Block,
	requests map[v1.ResourceName]uint64) topology.Supply {
	if len(requests) == 0 {
		return topology.Supply{}
	}
	return s.question(held, reusable, requests).supply()
}

// Again returns the hints for a container that already holds its blocks; nil, no preference, if the
// blocks do not match the requests.
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

// question is a request on a machine in use. Sets of nodes are ascending positions in nodes.
type question struct {
	wanted []uint64 // by resource
	backed topology.NodeSet
	nodes  []place // nodes that have memory, ascending
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
	q := question{backed: s.backed, reuse: map[topology.NodeSet][]uint64{}}
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
			if _, lent := b.Lent(all); lent || !nodes.Has(p.id) {
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

// supply describes the unused nodes, all resources together, and the groups with room.
func (q question) supply() topology.Supply {
	var unused []int
	out := topology.Supply{Least: q.atLeast(), Width: q.narrowest(), Additive: true}
	for at, p := range q.nodes {
		if p.group.IsEmpty() {
			unused, out.Nodes = append(unused, at), append(out.Nodes, p.id)
			continue
		}
		if set := q.positions(p.group); !slices.Contains(out.Sets, p.group) &&
			q.allows(set, p.group) && q.hasRoom(set, p.group) {
			out.Sets = append(out.Sets, p.group)
		}
	}
	for r, wanted := range q.wanted {
		amount := topology.Amount{Wanted: wanted}
		for _, at := range unused {
			amount.Free = append(amount.Free, q.nodes[at].free[r])
		}
		out.Amounts = append(out.Amounts, amount)
	}
	set := make([]int, len(unused))
	out.Holds = func(nodes topology.NodeSet, of []int) bool {
		for i, at := range of {
			set[i] = unused[at]
		}
		return q.hasRoom(set[:len(of)], nodes)
	}
	return out
}

// allows reports whether the nodes may be used together: a node that is used alone joins no group,
// and one in a group is used only with the whole group. nodes is the same set.
func (q question) allows(set []int, nodes topology.NodeSet) bool {
	for _, at := range set {
		p := q.nodes[at]
		if p.mixed || !p.group.IsEmpty() && p.group != nodes {
			return false
		}
	}
	return true
}

// hasRoom reports whether the nodes have all that is wanted, free or reusable by the pod. nodes is
// the same set.
func (q question) hasRoom(set []int, nodes topology.NodeSet) bool {
	return q.have(set, q.reuse[nodes], func(p *place) []uint64 { return p.free })
}

// couldHold is hasRoom on the empty machine.
func (q question) couldHold(set []int) bool {
	return q.have(set, nil, func(p *place) []uint64 { return p.allocatable })
}

// have reports whether the sizes of the nodes, plus more if any, add up to all that is wanted.
func (q question) have(set []int, more []uint64, sizes func(*place) []uint64) bool {
	for r, wanted := range q.wanted {
		sum := uint64(0)
		if more != nil {
			sum = more[r]
		}
		for _, at := range set {
			sum += sizes(&q.nodes[at])[r]
		}
		if sum < wanted {
			return false
		}
	}
	return true
}

// atLeast returns a lower bound for the number of nodes that could hold the request.
func (q question) atLeast() int {
	most := 1
	for r, wanted := range q.wanted {
		sizes := make([]uint64, len(q.nodes))
		for at, p := range q.nodes {
			sizes[at] = p.allocatable[r]
		}
		most = max(most, topology.Fewest(sizes, wanted))
	}
	return most
}

// narrowest returns the number of nodes that the request needs on the empty machine. If resources
// are on different nodes and there are too many sets to try, it can be too low: then no hint is
// preferred.
func (q question) narrowest() int {
	width, _ := topology.Narrowest(len(q.nodes), q.atLeast(), len(q.nodes), q.couldHold)
	return width
}

func (q question) positions(nodes topology.NodeSet) (set []int) {
	for at, p := range q.nodes {
		if nodes.Has(p.id) {
			set = append(set, at)
		}
	}
	return set
}
