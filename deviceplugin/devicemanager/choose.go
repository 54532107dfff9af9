package devicemanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology"
)

// Request is one container's request for devices of one resource, with the state of the node that
// the choice depends on.
type Request struct {
	Resource Resource
	// N is the number of devices that the container asks for.
	N int
	// Taken holds the ids that any container holds; Reusable and MustInclude may be among them.
	Taken sets.Set[string]
	// Reusable lists ids that init containers of the same pod hold. They are used first; if there
	// are more than needed, the choice is among them.
	Reusable []string
	// MustInclude lists ids that the container holds already.
	MustInclude []string
	// Hint is the placement merged from all providers' hints.
	Hint topology.Hint
	// Near are the PCI devices to be close to.
	Near Neighbours
	// Advice is the plugin's answer to AdviceWanted. Choose ignores ids that are not free or not
	// known, and all of it if it takes devices away from those that they are to be close to.
	Advice []string
}

// Choose picks N devices, in natural order of ids. Devices that must be included come first, then
// reusable ones, then devices on a node of Hint (nodes with the fewest free devices first), then
// devices on other nodes, then devices without a node. Where this leaves a choice, devices close to
// Near come first; where that leaves one, Choose follows Advice as far as it goes.
//
// The error is an *UnhealthyError, an *UnavailableError, or says that MustInclude does not fit
// the request.
func Choose(req Request) ([]string, error) {
	s, err := req.settle()
	if err != nil {
		return nil, err
	}
	s.take(s.advised(req.Advice))
	s.take(s.open) // settle has counted: there are enough
	return s.ids(s.chosen), nil
}

// AdviceWanted reports whether to ask the plugin which devices it prefers, and returns the
// question. It asks only if the plugin announces GetPreferredAllocation and there is a choice to
// make.
func AdviceWanted(req Request) (PreferredRequest, bool) {
	if !req.Resource.Options.Preferred || !req.Resource.Connected {
		return PreferredRequest{}, false
	}
	s, err := req.settle()
	if err != nil || s.missing() == 0 || s.missing() == len(s.open) {
		return PreferredRequest{}, false
	}
	return PreferredRequest{
		Resource:    req.Resource.Name,
		Available:   s.ids(slices.Concat(s.open, s.chosen)),
		MustInclude: s.ids(s.chosen),
		Size:        req.N,
	}, true
}

// narrowed is a request after every step that leaves no choice. It names devices by their index in
// the resource's list, which is in the order of ids: nothing here sorts or hashes ids, since there
// may be hundreds of thousands.
type narrowed struct {
	devices []*Device
	n       int
	chosen  []int
	has     sets.Set[int]
	// open lists the devices to choose the missing ones from, best first.
	open []int
	// close pairs them with their neighbours, and best is the merit of the best choice.
	close pairing
	best  merit
}

func (s *narrowed) missing() int { return s.n - len(s.chosen) }

// take chooses from devices, in their order, until nothing is missing.
func (s *narrowed) take(devices []int) {
	for _, d := range devices {
		if s.missing() <= 0 {
			return
		}
		if !s.has.Has(d) {
			s.has.Insert(d)
			s.chosen = append(s.chosen, d)
		}
	}
}

// advised returns the open devices among advice, in natural order of ids; none if these would not be
// as close to their neighbours as others.
func (s *narrowed) advised(advice []string) []int {
	if len(advice) == 0 {
		return nil
	}
	wanted := sets.New(s.find(advice)...)
	open := make([]int, 0, wanted.Len())
	for _, d := range s.open {
		if wanted.Has(d) {
			open = append(open, d)
		}
	}
	slices.Sort(open)
	open = open[:min(len(open), s.missing())]
	first, all := sets.New(open...), slices.Clone(open)
	for _, d := range s.open {
		if len(all) < s.missing() && !first.Has(d) {
			all = append(all, d)
		}
	}
	if !s.asClose(all) {
		return nil
	}
	return open
}

// find returns the indices of the healthy devices among ids, ascending.
func (s *narrowed) find(ids []string) []int {
	var out []int
	for _, id := range ids {
		if at, found := lookUp(s.devices, id); found && s.devices[at].Healthy {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ids returns the ids of devices, in natural order.
func (s *narrowed) ids(places []int) []string {
	places = slices.Clone(places)
	slices.Sort(places)
	out := make([]string, len(places))
	for i, at := range places {
		out[i] = s.devices[at].ID
	}
	return out
}

// settle makes the steps that leave no choice, and orders the devices that are left.
func (req Request) settle() (*narrowed, error) {
	s, err := req.narrow()
	if err == nil {
		s.pair()
	}
	return s, err
}

// narrow returns the devices that are certain, and those to choose the missing ones from.
func (req Request) narrow() (*narrowed, error) {
	s := &narrowed{
		devices: req.Resource.Devices, n: req.N, has: sets.New[int](),
		close: req.pairing(req.Resource.Devices),
	}
	must := sortedIDs(req.MustInclude)
	held := s.find(must)
	switch {
	case len(must) > req.N:
		return nil, fmt.Errorf("%s: %d devices must be included in a choice of %d",
			req.Resource.Name, len(must), req.N)
	case req.N > 0 && !slices.ContainsFunc(s.devices, func(d *Device) bool { return d.Healthy }):
		return nil, &UnhealthyError{Resource: req.Resource.Name, None: len(s.devices) == 0}
	case len(held) < len(must):
		return nil, &UnhealthyError{Resource: req.Resource.Name, Held: true}
	}
	s.take(held)
	reusable := slices.DeleteFunc(s.find(req.Reusable), s.has.Has)
	if s.missing() < len(reusable) {
		s.open = reusable
		return s, nil
	}
	s.take(reusable)

	free := make([]int, 0, len(s.devices))
	for i, d := range s.devices {
		if d.Offered() && !req.Taken.Has(d.ID) && !s.has.Has(i) {
			free = append(free, i)
		}
	}
	if len(free) < s.missing() {
		return nil, &UnavailableError{
			Resource: req.Resource.Name, Requested: s.missing(), Available: len(free),
			Cordoned: req.Resource.Cordoned(),
		}
	}
	aligned, rest := s.byAffinity(free, req.Hint)
	if s.missing() < len(aligned) {
		s.open = aligned
		return s, nil
	}
	s.take(aligned)
	s.open = rest
	return s, nil
}

// byAffinity splits free devices into those with a node in the hint and the rest, each best first.
// Nodes with the fewest free devices come first, to leave the fuller nodes whole; then the lower
// node, then the lower id. Devices without a node come last. If the hint allows any node, nothing
// is aligned and ids alone give the order.
func (s *narrowed) byAffinity(free []int, hint topology.Hint) (aligned, rest []int) {
	if hint.Any {
		return nil, free
	}
	groups := s.byNodes(free)
	onNode := map[topology.NodeID]int{}
	for _, g := range groups {
		for _, node := range g.nodes.IDs() {
			onNode[node] += len(g.devices)
		}
	}
	at := map[place][]int{}
	for _, g := range groups {
		p := placeOf(g.nodes, hint.Nodes, onNode)
		at[p] = append(at[p], g.devices...)
	}
	for _, p := range slices.SortedFunc(maps.Keys(at), func(a, b place) int {
		if (a.node == topology.NoNode) != (b.node == topology.NoNode) {
			return -cmp.Compare(a.node, b.node)
		}
		return cmp.Or(cmp.Compare(onNode[a.node], onNode[b.node]), cmp.Compare(a.node, b.node))
	}) {
		slices.Sort(at[p])
		if p.aligned {
			aligned = append(aligned, at[p]...)
		} else {
			rest = append(rest, at[p]...)
		}
	}
	return aligned, rest
}

// alike holds devices with the same nodes.
type alike struct {
	nodes   topology.NodeSet
	devices []int
}

// byNodes groups devices by their nodes.
func (s *narrowed) byNodes(devices []int) (groups []alike) {
	var g grouping
	for _, d := range devices {
		i := g.of(s.devices[d].Nodes)
		if i == len(groups) {
			groups = append(groups, alike{nodes: g.nodes[i]})
		}
		groups[i].devices = append(groups[i].devices, d)
	}
	return groups
}

// place says where a device counts as being.
type place struct {
	aligned bool            // it has a node in the hint
	node    topology.NodeID // the node that decides the order
}

// placeOf returns the place of a device with these nodes: the node with the fewest free devices,
// among the nodes in the hint, or among all if none is in the hint.
func placeOf(set, hint topology.NodeSet, free map[topology.NodeID]int) place {
	nodes := set.Intersect(hint)
	p := place{aligned: !nodes.IsEmpty(), node: topology.NoNode}
	if !p.aligned {
		nodes = set
	}
	for _, n := range nodes.IDs() {
		if p.node == topology.NoNode || free[n] < free[p.node] {
			p.node = n
		}
	}
	return p
}
