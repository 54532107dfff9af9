package topology

import "slices"

// Result is one placement for all resources of a container (or pod), and whether the policy admits
// the pod with it.
type Result struct {
	// Hint guides the providers' allocation; it is meaningful even if Admit is false.
	Hint  Hint
	Admit bool
}

// Merge finds the best placement that the hints of all providers agree on, under policy. nodes are
// all nodes of the machine. providers holds one list of resources per provider; their order does
// not matter. doc.go has the rules; they are KEP-693's as the kubelet applies them.
func (o Options) Merge(policy Policy, nodes NodeSet, providers [][]ResourceHints) Result {
	if policy == None {
		return Result{Hint: Hint{Any: true}, Admit: true}
	}
	lists := hintLists(providers)
	if policy == SingleNUMANode {
		lists = onOneNode(lists)
	}
	hint := o.best(nodes, lists)
	switch policy {
	case BestEffort:
		return Result{Hint: hint, Admit: true}
	case SingleNUMANode:
		if hint.Nodes == nodes {
			hint = Hint{Any: true, Preferred: hint.Preferred}
		}
	}
	return Result{Hint: hint, Admit: hint.Preferred}
}

// hintLists returns one list of hints for each resource that has a preference. A resource without
// any placement gets a single hint: any node, not preferred.
func hintLists(providers [][]ResourceHints) [][]Hint {
	var lists [][]Hint
	for _, resources := range providers {
		for _, r := range resources {
			switch {
			case r.Hints == nil:
			case len(r.Hints) == 0:
				lists = append(lists, []Hint{{Any: true}})
			default:
				lists = append(lists, r.Hints)
			}
		}
	}
	return lists
}

// onOneNode keeps the preferred hints with one node or any. A list may become empty: then no pick
// exists.
func onOneNode(lists [][]Hint) [][]Hint {
	out := make([][]Hint, len(lists))
	for i, list := range lists {
		for _, h := range list {
			if h.Preferred && (h.Any || h.Nodes.Len() == 1) {
				out[i] = append(out[i], h)
			}
		}
	}
	return out
}

func (o Options) best(nodes NodeSet, lists [][]Hint) Hint {
	narrowest := order{distances: o.distances, places: o.places}
	if set := preferredByAll(narrowest, nodes, lists); !set.IsEmpty() {
		return Hint{Nodes: set, Preferred: true}
	}
	// The remaining picks are not preferred.
	around := narrowest
	around.width = max(1, neededWidth(lists))
	if set := bestShared(around, nodes, lists); !set.IsEmpty() {
		return Hint{Nodes: set}
	}
	return Hint{Nodes: nodes}
}

// preferredByAll finds the best node set that every resource prefers; a resource that prefers any
// node counts for all sets. Empty: there is none.
func preferredByAll(o order, nodes NodeSet, lists [][]Hint) NodeSet {
	most := 0
	for _, list := range lists {
		most = max(most, len(list))
	}
	votes := make(map[NodeSet]int, most) // votes of the resources with preferred sets
	careful := 0
	for _, list := range lists {
		flexible := slices.ContainsFunc(list, func(h Hint) bool { return h.Any && h.Preferred })
		for _, h := range list {
			switch {
			case h.Any || !h.Preferred:
			case flexible:
				votes[h.Nodes] += 0 // a candidate even if no resource votes
			case votes[h.Nodes] == careful: // else an earlier resource did not vote for it
				votes[h.Nodes]++
			}
		}
		if !flexible {
			careful++
		}
	}
	if careful == 0 {
		votes[nodes] = 0
	}
	var found rank
	for set, n := range votes {
		set = set.Intersect(nodes)
		if n < careful || set.IsEmpty() {
			continue
		}
		if r := o.rank(set); found.set.IsEmpty() || r.compare(found) < 0 {
			found = r
		}
	}
	return found.set
}

// neededWidth returns the number of nodes of the resource that needs the most.
func neededWidth(lists [][]Hint) int {
	needed := 0
	for _, list := range lists {
		narrowest := -1
		for _, h := range list {
			if w := h.Nodes.Len(); !h.Any && (narrowest < 0 || w < narrowest) {
				narrowest = w
			}
		}
		needed = max(needed, narrowest)
	}
	return needed
}
