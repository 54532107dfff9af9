package memory

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

// Causes of a failed Choose. The texts are the kubelet's.
var (
	// ErrNoRoom: no permitted set of nodes has enough free.
	ErrNoRoom = errors.New("[memorymanager] failed to get the default NUMA affinity, " +
		"no NUMA nodes with enough memory is available")
	// ErrNotPreferred: a preferred placement is required, and all with room need too many nodes.
	ErrNotPreferred = errors.New("[memorymanager] failed to find the default preferred hint")
	// ErrExtendedNotPreferred: the same, for placements around the hint.
	ErrExtendedNotPreferred = errors.New(
		"[memorymanager] failed to find the extended preferred hint")
	// ErrGroups: the hint has room, but its nodes are used alone or in other groups.
	ErrGroups = errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	// ErrNoExtension: the hint has too little room, and no set of nodes around it has enough.
	ErrNoExtension = errors.New(
		"[memorymanager] failed to find NUMA nodes to extend the current topology hint")
)

// Refused reports whether err is, or wraps, one of these errors.
func Refused(err error) bool {
	return slices.ContainsFunc([]error{
		ErrNoRoom, ErrNotPreferred, ErrExtendedNotPreferred, ErrGroups, ErrNoExtension,
	}, func(of error) bool { return errors.Is(err, of) })
}

// Choose places the requests on the nodes of the hint, which is the merged answer of all providers,
// if they have room; else it adds as few other nodes as possible. With a hint of any node it takes
// the fewest and lowest nodes. It returns one block for each resource, by name, all on the same
// nodes; none if nothing is requested. The errors are those above.
//
// held and reusable are as for Supply. Afterwards Reuse returns the rest of the reusable blocks.
func (s *Static) Choose(held, reusable []Block, requests map[v1.ResourceName]uint64,
	hint topology.Hint) ([]Block, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	q := s.question(held, reusable, requests)
	nodes, err := q.place(hint)
	if err != nil {
		return nil, err
	}
	var blocks []Block
	for _, name := range sortedKeys(requests) {
		blocks = append(blocks, Block{Nodes: nodes, Resource: name, Size: requests[name]})
	}
	return blocks, nil
}

func (q question) place(hint topology.Hint) (topology.NodeSet, error) {
	if hint.Any || hint.Nodes.IsEmpty() {
		best, ok := q.best(topology.NodeSet{})
		if !ok {
			return topology.NodeSet{}, ErrNoRoom
		}
		if hint.Preferred && !best.Preferred {
			return topology.NodeSet{}, ErrNotPreferred
		}
		return best.Nodes, nil
	}
	nodes := hint.Nodes.Intersect(q.backed)
	set := q.positions(nodes)
	allowed := len(set) > 0 && q.allows(set, nodes)
	if len(set) > 0 && q.hasRoom(set, nodes) {
		if allowed {
			return nodes, nil
		}
		if len(set) > 1 {
			return topology.NodeSet{}, ErrGroups
		}
	}
	best, ok := q.best(nodes)
	if !ok {
		return topology.NodeSet{}, ErrNoExtension
	}
	if hint.Preferred && !best.Preferred {
		return topology.NodeSet{}, ErrExtendedNotPreferred
	}
	return best.Nodes, nil
}

// best returns the first offer that contains all of nodes. It is one of the narrowest, and
// preferred if any offer is: no offer is narrower than a preferred one.
func (q question) best(nodes topology.NodeSet) (best topology.Hint, ok bool) {
	for _, hint := range q.supply().Hints(nodes) {
		if nodes.SubsetOf(hint.Nodes) {
			return hint, true
		}
	}
	return topology.Hint{}, false
}
