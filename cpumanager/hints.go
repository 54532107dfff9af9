package cpumanager

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// maxSets limits how many node sets Hints tries one by one: all of 11 nodes, all pairs of 64.
const maxSets = 2048

// Hints lists the node sets from which n CPUs of free and reusable can be taken, as doc.go
// describes, always in the same order. It is nil if n is 0 (no preference), and
// empty but not nil if no set has room.
//
// For a container that has its CPUs already, pass these as free and none as reusable: the hints
// then repeat what it has.
func (s *Static) Hints(free, reusable cpuset.CPUSet, n int) []topology.Hint {
	if n <= 0 {
		return nil
	}
	q := s.question(free, reusable, n)
	if q.fewestNow > len(s.nodes) {
		return []topology.Hint{}
	}
	o := offers{Static: s, question: q}
	o.hints = make([]topology.Hint, 0, min(maxSets, 1<<min(len(s.nodes), 30)))
	if !o.tryAll() {
		o.tryAround()
	}
	return o.hints
}

// offers is the list of hints in the making. Sets of nodes are positions, ascending.
type offers struct {
	*Static
	question
	hints []topology.Hint
	// All sets narrower than width have been tried, and of those that wide all up to last.
	width int
	last  []int
}

// tryAll offers the sets of nodes that have room, the narrowest first, and returns false once it
// has tried too many.
func (o *offers) tryAll() bool {
	tried := 0
	for o.width = o.narrowest; o.width <= len(o.nodes); o.width++ {
		if o.width < o.fewestNow { // they would all be too small
			tried += choices(len(o.nodes), o.width)
		} else {
			topology.Combinations(len(o.nodes), o.width, func(set []int) bool {
				if o.satisfiedBy(set) {
					o.offer(o.nodesAt(set))
				}
				o.last = append(o.last[:0], set...)
				tried++
				return tried < maxSets
			})
		}
		if tried >= maxSets {
			return false
		}
	}
	return true
}

// tryAround offers the narrowest set with room around each node, and with align-by-socket the nodes
// of each socket, if they have not been offered.
func (o *offers) tryAround() {
	offered := map[topology.NodeSet]bool{}
	try := func(set []int) bool {
		if !o.satisfiedBy(set) {
			return false
		}
		nodes := o.nodesAt(set)
		known := len(set) < o.width || len(set) == o.width && slices.Compare(set, o.last) <= 0
		if !known && !offered[nodes] {
			offered[nodes] = true
			o.offer(nodes)
		}
		return true
	}
	if o.options.AlignBySocket {
		for _, socket := range o.sockets {
			try(socket.nodes)
		}
	}
	for at := range o.nodes {
		for width := o.width; width <= len(o.nodes); width++ {
			if set := o.roomiest(at, width); set != nil && try(set) {
				break
			}
		}
	}
}

func (o *offers) offer(nodes topology.NodeSet) {
	hint := topology.Hint{Nodes: nodes, Preferred: o.prefers(o.question, nodes)}
	o.hints = append(o.hints, hint)
}

func (l *layout) nodesAt(set []int) (nodes topology.NodeSet) {
	for _, at := range set {
		nodes = nodes.Union(l.nodes[at].set)
	}
	return nodes
}

// prefers reports whether the nodes are as few as can be or, with align-by-socket, their sockets.
func (s *Static) prefers(q question, nodes topology.NodeSet) bool {
	if nodes.Len() == q.narrowest {
		return true
	}
	if !s.options.AlignBySocket {
		return false
	}
	spanned := 0
	for _, socket := range s.sockets {
		if !socket.set.Intersect(nodes).IsEmpty() {
			spanned++
		}
	}
	return spanned == q.fewestSockets
}

// question is a request for CPUs, by node; nodes are positions in layout.nodes.
type question struct {
	n         int
	available []int   // CPUs free or reusable
	byRoom    []int   // the nodes, those with the most available first
	cores     []sizes // their whole cores, when these differ and no other CPUs count
	required  []int   // nodes with reusable CPUs
	// The number of nodes, and of sockets, that n CPUs need on an empty machine.
	narrowest, fewestSockets int
	// fewestNow is the number of nodes that can have n CPUs now, above that of nodes if none can.
	fewestNow int
}

func (s *Static) question(free, reusable cpuset.CPUSet, n int) question {
	q := question{n: n, available: make([]int, len(s.nodes)), byRoom: make([]int, len(s.nodes))}
	again := s.online.only(reusable)
	pool := s.online.only(free).or(again)
	unequal := false
	if s.options.FullPCPUsOnly {
		pool = wholeCores(s.cores, pool)
		unequal = s.sizes.only() == 0
	}
	for i, node := range s.nodes {
		q.available[i], q.byRoom[i] = pool.count(node.cpus), i
		if again.count(node.cpus) > 0 {
			q.required = append(q.required, i)
		}
		if unequal {
			q.cores = append(q.cores, coreSizes(node.cores, pool))
		}
	}
	q.narrowest, q.fewestSockets = fewest(s.nodeSizes, n), fewest(s.socketSizes, n)
	if unequal {
		q.narrowest = s.narrowestWhole(n, q.narrowest)
	}
	slices.SortStableFunc(q.byRoom, func(a, b int) int {
		return cmp.Compare(q.available[b], q.available[a])
	})
	for total := 0; total < n && q.fewestNow < len(s.nodes); q.fewestNow++ {
		total += q.available[q.byRoom[q.fewestNow]]
	}
	if pool.size() < n || s.options.FullPCPUsOnly && !s.sizes.multiple(n) {
		q.fewestNow = len(s.nodes) + 1
	}
	return q
}

// narrowestWhole is the number of nodes, at least width, of which some have whole cores of n CPUs
// together. Cores of several sizes can need more nodes than their number of CPUs says.
func (s *Static) narrowestWhole(n, width int) int {
	empty := question{n: n}
	for _, node := range s.nodes {
		empty.available = append(empty.available, node.sizes.total())
		empty.cores = append(empty.cores, node.sizes)
	}
	tried := 0
	for w := width; w <= len(s.nodes) && tried < maxSets; w++ {
		found := false
		topology.Combinations(len(s.nodes), w, func(set []int) bool {
			found = empty.satisfiedBy(set)
			tried++
			return !found && tried < maxSets
		})
		if found {
			return w
		}
	}
	return width
}

// fewest is how many of the sizes, the largest first, hold n together; all of them if they do not.
func fewest(sizes []int, n int) int {
	total, count := 0, 0
	for count < len(sizes) && total < n {
		total += sizes[count]
		count++
	}
	return count
}

// satisfiedBy reports whether the nodes of set, ascending, have room for the request.
func (q question) satisfiedBy(set []int) bool {
	total := 0
	for _, at := range set {
		total += q.available[at]
	}
	if total < q.n || q.fewestNow > len(q.available) {
		return false
	}
	for _, at := range q.required {
		if _, ok := slices.BinarySearch(set, at); !ok {
			return false
		}
	}
	if q.cores == nil {
		return true
	}
	var together sizes
	for _, at := range set {
		together.add(q.cores[at])
	}
	return together.makeUp(q.n)
}

// roomiest is the set of width nodes that contains node at and has the most CPUs available; nil
// when the required nodes do not leave room for it.
func (q question) roomiest(at, width int) []int {
	set := slices.Clone(q.required)
	if !slices.Contains(set, at) {
		set = append(set, at)
	}
	if len(set) > width {
		return nil
	}
	must := set
	for _, i := range q.byRoom {
		if len(set) < width && !slices.Contains(must, i) {
			set = append(set, i)
		}
	}
	slices.Sort(set)
	return set
}

// Need is what n CPUs need of the nodes that Hints prefers, for machines on which Hints cannot list
// all of them.
func (s *Static) Need(free, reusable cpuset.CPUSet, n int) topology.Need {
	q := s.question(free, reusable, n)
	need := topology.Need{
		Amount: uint64(max(n, 0)), Free: map[topology.NodeID]uint64{}, Width: q.narrowest,
		Additive: !s.options.FullPCPUsOnly,
		Fits: func(nodes topology.NodeSet) bool {
			set, ok := s.positions(nodes)
			return ok && q.satisfiedBy(set) && s.prefers(q, nodes)
		},
	}
	if s.options.AlignBySocket {
		need.Width, need.Additive = 0, false
	}
	for at, node := range s.nodes {
		need.Free[node.id] = uint64(q.available[at])
	}
	for _, at := range q.required {
		need.Must = need.Must.Union(s.nodes[at].set)
	}
	return need
}

// positions finds the nodes; false if one has no CPUs.
func (s *Static) positions(nodes topology.NodeSet) (set []int, ok bool) {
	for _, id := range nodes.IDs() {
		at, ok := slices.BinarySearchFunc(s.nodes, id, func(n numaNode, id topology.NodeID) int {
			return cmp.Compare(n.id, id)
		})
		if !ok {
			return nil, false
		}
		set = append(set, at)
	}
	return set, true
}
