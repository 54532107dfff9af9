package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology"
)

// Request is one container's request for devices of one resource, with what has to be known of
// the node to answer it.
type Request struct {
	Resource Resource
	// N is how many devices the container asks for.
	N int
	// Taken are the ids that containers hold, whoever they are; Reusable and MustInclude may be
	// among them.
	Taken sets.Set[string]
	// Reusable are ids that init containers of the same pod hold: they are used first.
	Reusable []string
	// MustInclude are ids that the container holds already.
	MustInclude []string
	// Hint is the placement that was merged from all providers' hints.
	Hint topology.Hint
	// Advice is what the plugin prefers, the answer to AdviceWanted. Ids in it that are not free
	// or not known are passed over.
	Advice []string
}

// Choose picks N devices, in natural order of ids. Devices that must be included come first,
// then reusable ones, then those with a node in Hint (nodes with the fewest free devices first),
// then those on other nodes, then those without a node. Wherever this leaves a choice, Advice is
// followed as far as it goes.
//
// The error is an *UnhealthyError, an *UnavailableError, or says that MustInclude does not fit
// the request.
func Choose(req Request) ([]string, error) {
	s, err := req.settle()
	if err != nil {
		return nil, err
	}
	open := sets.New(s.open...)
	s.take(slices.DeleteFunc(sortedIDs(req.Advice), func(id string) bool { return !open.Has(id) }))
	s.take(s.open)
	if s.missing() > 0 {
		// settle has counted the free devices, so this is unreachable; the text is the kubelet's.
		return nil, fmt.Errorf("unexpectedly allocated less resources than required. "+
			"Requested: %d, Got: %d", req.N, len(s.chosen))
	}
	return sortedIDs(s.chosen), nil
}

// AdviceWanted tells whether the plugin should be asked which devices it prefers, and what to
// ask: it announces that it answers, and there is a choice to make.
func AdviceWanted(req Request) (PreferredRequest, bool) {
	if !req.Resource.Preferred || !req.Resource.Connected {
		return PreferredRequest{}, false
	}
	s, err := req.settle()
	if err != nil || s.missing() == 0 || s.missing() == len(s.open) {
		return PreferredRequest{}, false
	}
	return PreferredRequest{
		Resource:    req.Resource.Name,
		Available:   sortedIDs(slices.Concat(s.open, s.chosen)),
		MustInclude: sortedIDs(s.chosen),
		Size:        req.N,
	}, true
}

// settled is a request after everything that leaves no choice.
type settled struct {
	n      int
	chosen []string
	has    sets.Set[string]
	// open are the devices of which the missing ones are to be chosen, best first.
	open []string
}

func (s *settled) missing() int { return s.n - len(s.chosen) }

// take chooses from ids, in their order, until nothing is missing.
func (s *settled) take(ids []string) {
	for _, id := range ids {
		if s.missing() <= 0 {
			return
		}
		if !s.has.Has(id) {
			s.has.Insert(id)
			s.chosen = append(s.chosen, id)
		}
	}
}

func (req Request) settle() (*settled, error) {
	healthy := make(sets.Set[string], len(req.Resource.Devices))
	for _, d := range req.Resource.Devices {
		if d.Healthy {
			healthy.Insert(d.ID)
		}
	}
	must := sortedIDs(req.MustInclude)
	switch {
	case len(must) > req.N:
		return nil, fmt.Errorf("%s: %d devices must be included in a choice of %d",
			req.Resource.Name, len(must), req.N)
	case req.N > 0 && len(healthy) == 0:
		return nil, &UnhealthyError{Resource: req.Resource.Name}
	case !healthy.HasAll(must...):
		return nil, &UnhealthyError{Resource: req.Resource.Name, Held: true}
	}
	s := &settled{n: req.N, has: sets.New[string]()}
	s.take(must)
	s.take(slices.DeleteFunc(sortedIDs(req.Reusable), func(id string) bool {
		return !healthy.Has(id)
	}))

	var free []Device
	for _, d := range req.Resource.Devices {
		if d.Healthy && !req.Taken.Has(d.ID) && !s.has.Has(d.ID) {
			free = append(free, d)
		}
	}
	if len(free) < s.missing() {
		return nil, &UnavailableError{
			Resource: req.Resource.Name, Requested: s.missing(), Available: len(free),
		}
	}
	aligned, rest := byAffinity(free, req.Hint)
	if s.missing() < len(aligned) {
		s.open = aligned
		return s, nil
	}
	s.take(aligned)
	s.open = rest
	return s, nil
}

// byAffinity splits free devices into those with a node in the hint and the rest, both best
// first: by the number of free devices on their node (the fewest first, to leave the fuller nodes
// whole), then by node, then by id; devices without a node come last. With a hint of any node
// nothing is aligned, and ids alone give the order.
func byAffinity(free []Device, hint topology.Hint) (aligned, rest []string) {
	if hint.Any {
		for _, d := range free {
			rest = append(rest, d.ID)
		}
		slices.SortFunc(rest, CompareIDs)
		return nil, rest
	}
	onNode := map[topology.NodeID]int{}
	for _, d := range free {
		for _, n := range d.Nodes.IDs() {
			onNode[n]++
		}
	}
	type place struct {
		id      string
		aligned bool
		node    topology.NodeID // that counts for the order
	}
	places := make([]place, len(free))
	for i, d := range free {
		nodes := d.Nodes.Intersect(hint.Nodes)
		p := place{id: d.ID, aligned: !nodes.IsEmpty(), node: topology.NoNode}
		if !p.aligned {
			nodes = d.Nodes
		}
		for _, n := range nodes.IDs() {
			if p.node == topology.NoNode || onNode[n] < onNode[p.node] {
				p.node = n
			}
		}
		places[i] = p
	}
	slices.SortFunc(places, func(a, b place) int {
		if (a.node == topology.NoNode) != (b.node == topology.NoNode) {
			return -cmp.Compare(a.node, b.node)
		}
		return cmp.Or(cmp.Compare(onNode[a.node], onNode[b.node]), cmp.Compare(a.node, b.node),
			CompareIDs(a.id, b.id))
	})
	for _, p := range places {
		if p.aligned {
			aligned = append(aligned, p.id)
		} else {
			rest = append(rest, p.id)
		}
	}
	return aligned, rest
}
