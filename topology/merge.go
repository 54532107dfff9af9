package topology

import "cmp"

// Result is one placement for all resources of a container (or pod), and whether the policy lets
// the pod in with it.
type Result struct {
	// Hint is what the providers allocate by; it is meaningful also when Admit is false.
	Hint  Hint
	Admit bool
}

// Merge finds the best placement that the hints of all providers agree on, under policy. nodes are
// all nodes of the machine. providers holds one list of resources for each provider; their order
// does not matter. doc.go has the rules; they are KEP-693's as the kubelet applies them.
func Merge(policy Policy, nodes NodeSet, providers [][]ResourceHints) Result {
	if policy == None {
		return Result{Hint: Hint{Any: true}, Admit: true}
	}
	lists := hintLists(providers)
	if policy == SingleNUMANode {
		lists = onOneNode(lists)
	}
	hint := best(nodes, lists)
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

// hintLists gives one list of hints for each resource that has a preference. A resource without
// any placement gets the one hint that stands for this.
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

// onOneNode keeps the preferred hints of one node or of any. A list may become empty: then there
// is no way to pick one hint per resource.
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

func best(nodes NodeSet, lists [][]Hint) Hint {
	if set, ok := preferredByAll(nodes, lists); ok {
		return Hint{Nodes: set, Preferred: true}
	}
	// What is left are picks that are not preferred.
	width := neededWidth(lists)
	var found NodeSet
	for set := range shared(nodes, lists) {
		if found.IsEmpty() || compareAround(width, set, found) < 0 {
			found = set
		}
	}
	if found.IsEmpty() {
		found = nodes
	}
	return Hint{Nodes: found}
}

// preferredByAll finds the best node set that every resource prefers, where a resource that
// prefers any node counts for all sets.
func preferredByAll(nodes NodeSet, lists [][]Hint) (NodeSet, bool) {
	votes := map[NodeSet]int{} // of the resources that care
	careful := 0
	for _, list := range lists {
		prefers, flexible := map[NodeSet]bool{}, false
		for _, h := range list {
			switch {
			case !h.Preferred:
			case h.Any:
				flexible = true
			default:
				prefers[h.Nodes] = true
			}
		}
		vote := 0
		if !flexible {
			careful++
			vote = 1
		}
		for set := range prefers {
			votes[set] += vote
		}
	}
	if careful == 0 {
		votes[nodes] = 0
	}
	var found NodeSet
	for set, n := range votes {
		set = set.Intersect(nodes)
		if n == careful && !set.IsEmpty() && (found.IsEmpty() || compareWidth(set, found) < 0) {
			found = set
		}
	}
	return found, !found.IsEmpty()
}

// neededWidth is the number of nodes of the resource that needs the most.
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

// shared collects the node sets that picks of one hint per list have in common, empty ones left
// out.
func shared(nodes NodeSet, lists [][]Hint) map[NodeSet]struct{} {
	reached := map[NodeSet]struct{}{nodes: {}}
	for _, list := range lists {
		sets := map[NodeSet]struct{}{}
		for _, h := range list {
			if h.Any {
				sets[nodes] = struct{}{}
			} else {
				sets[h.Nodes] = struct{}{}
			}
		}
		next := map[NodeSet]struct{}{}
		for a := range reached {
			for b := range sets {
				if both := a.Intersect(b); !both.IsEmpty() {
					next[both] = struct{}{}
				}
			}
		}
		reached = next
	}
	return reached
}

// compareWidth orders the narrower set first, then the one of lower value.
func compareWidth(a, b NodeSet) int {
	return cmp.Or(cmp.Compare(a.Len(), b.Len()), a.Compare(b))
}

// compareAround orders sets of the given width first, then narrower ones, widest first, then wider
// ones, narrowest first; equally wide sets by value.
func compareAround(width int, a, b NodeSet) int {
	away := func(s NodeSet) int {
		if w := s.Len(); w <= width {
			return width - w
		} else {
			return w // beyond every width-w above, since that is less than width
		}
	}
	return cmp.Or(cmp.Compare(away(a), away(b)), a.Compare(b))
}
