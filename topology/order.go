package topology

import "cmp"

// order says which of two node sets is the better answer.
type order struct {
	// width is the number of nodes to aim at: sets of that width come first, then narrower ones,
	// the widest first, then wider ones, the narrowest first. 0 and 1: the narrowest first.
	width     int
	distances *distances
	places    *places // nil: those of the ids
}

// rank is the place of a node set in the order; the lowest is the best.
type rank struct {
	away     int // from the width to aim at
	distance int
	set      NodeSet
	places   NodeSet // the set's
}

func (o order) rank(set NodeSet) rank {
	return rank{
		away: o.away(set.Len()), distance: o.distances.sum(set), set: set, places: o.places.of(set),
	}
}

// bound says what the subsets of set with at most this many nodes can come to: none of them has
// a lower rank. The set in it need not be one of them.
func (o order) bound(set NodeSet, nodes int) rank {
	width := min(nodes, o.width)
	if width == set.Len() {
		return o.rank(set)
	}
	return rank{
		away: o.away(width), distance: o.distances.bound(width), set: set.lowest(width),
		places: o.places.of(set).lowest(width),
	}
}

// mayBeat reports whether that bound is better than a rank.
func (o order) mayBeat(r rank, set NodeSet, nodes int) bool {
	if away := o.away(min(nodes, o.width)); away != r.away {
		return away < r.away // distances take longer
	}
	return o.bound(set, nodes).compare(r) < 0
}

func (o order) away(width int) int {
	if width > o.width {
		return width // beyond all of the others, which are less than o.width
	}
	return o.width - width
}

func (r rank) compare(other rank) int {
	return cmp.Or(cmp.Compare(r.away, other.away), cmp.Compare(r.distance, other.distance),
		r.places.Compare(other.places))
}
