package cpumanager

import (
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// Supply describes the node sets that can give n CPUs of free and reusable, as doc.go explains.
//
// For a container that already has its CPUs, pass these as free and nothing as reusable: the hints
// then repeat what it has.
func (s *Static) Supply(free, reusable cpuset.CPUSet, n int) topology.Supply {
	again := s.layout.online.only(reusable)
	pool := s.layout.online.only(free).or(again)
	nodes := len(s.layout.nodes)
	r := request{n: n, available: make([]int, 0, nodes)}
	unequal := s.options.FullPCPUsOnly && s.layout.sizes.only() == 0
	if s.options.FullPCPUsOnly {
		pool = wholeCores(s.layout.cores, pool)
	}
	supply := topology.Supply{
		Width: s.narrowest(n, unequal), Additive: !s.options.FullPCPUsOnly,
		Holds: func(_ topology.NodeSet, at []int) bool { return r.satisfiedBy(at) },
		Nodes: make([]topology.NodeID, 0, nodes),
	}
	amount := topology.Amount{Wanted: uint64(max(n, 0)), Free: make([]uint64, 0, nodes)}
	for _, node := range s.layout.nodes {
		free := pool.count(node.cpus)
		r.available = append(r.available, free)
		amount.Free = append(amount.Free, uint64(free))
		supply.Nodes = append(supply.Nodes, node.id)
		if again.count(node.cpus) > 0 {
			supply.Must = supply.Must.Union(node.set)
		}
		if unequal {
			r.cores = append(r.cores, coreSizes(node.cores, pool))
		}
	}
	supply.Amounts = []topology.Amount{amount}
	if supply.Least = topology.Fewest(r.available, n); pool.size() < n ||
		s.options.FullPCPUsOnly && !s.layout.sizes.multiple(n) {
		supply.Least = nodes + 1
	}
	if s.options.AlignBySocket {
		s.alignBySocket(&supply, r)
	}
	return supply
}

// alignBySocket prefers sets on as few sockets as possible besides sets of as few nodes as
// possible.
func (s *Static) alignBySocket(supply *topology.Supply, r request) {
	var sizes []int
	for _, socket := range s.layout.sockets {
		sizes = append(sizes, s.all.count(socket.cpus))
	}
	few := topology.Fewest(sizes, r.n)
	width := supply.Width
	supply.Prefers = func(nodes topology.NodeSet) bool {
		spanned := 0
		for _, socket := range s.layout.sockets {
			if !socket.set.Intersect(nodes).IsEmpty() {
				spanned++
			}
		}
		return nodes.Len() == width || spanned == few
	}
	for _, socket := range s.layout.sockets {
		if supply.Least <= len(socket.nodes) && r.satisfiedBy(socket.nodes) {
			supply.Sets = append(supply.Sets, socket.set)
		}
	}
}

// narrowest returns the number of nodes that n CPUs need on an empty machine. Cores of several
// sizes can need more nodes than their number of CPUs suggests.
func (s *Static) narrowest(n int, unequal bool) int {
	var sizes []int
	for _, node := range s.layout.nodes {
		sizes = append(sizes, s.all.count(node.cpus))
	}
	width := topology.Fewest(sizes, n)
	if !unequal {
		return width
	}
	empty := request{n: n}
	for _, node := range s.layout.nodes {
		whole := coreSizes(node.cores, s.all)
		empty.available = append(empty.available, whole.total())
		empty.cores = append(empty.cores, whole)
	}
	if found, sure := topology.Narrowest(len(s.layout.nodes), width, len(s.layout.nodes),
		empty.satisfiedBy); sure {
		return found
	}
	return width
}

// request is a request for n CPUs, by node; nodes are positions in layout.nodes.
type request struct {
	n         int
	available []int   // CPUs free or reusable
	cores     []sizes // their whole cores, if sizes differ and only whole cores count
}

// satisfiedBy reports whether the nodes have room for the request.
func (r request) satisfiedBy(set []int) bool {
	total := 0
	for _, at := range set {
		total += r.available[at]
	}
	if total < r.n || r.cores == nil {
		return total >= r.n
	}
	var together sizes
	for _, at := range set {
		together.add(r.cores[at])
	}
	return together.makeUp(r.n)
}
