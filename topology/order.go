package topology

import "cmp"

// order compares two node sets as answers.
type order struct {
	// width is the target number of nodes: sets of that width come first, then narrower ones, the
	// widest first, then wider ones, the narrowest first. With 0 and 1 the narrowest come first.
	width     int
	distances *distances
	places    *places // nil: ids count as places
}

// rank is the place of a node set in the order; lower is better.
type rank struct {
	away     int // difference to the target width, see order.away
	distance int
	set      NodeSet
	places   NodeSet // the set's
}

func (o order) rank(set NodeSet) rank {
	return rank{
		away: o.away(set.Len()), distance: o.distances.sum(set), set: set, places: o.places.of(set),
	}
}

// bound returns a rank that no subset of set with at most this many nodes undercuts. Its set need
// not be one of them.
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

// mayBeat reports whether that bound is better than r.
func (o order) mayBeat(r rank, set NodeSet, nodes int) bool {
	if away := o.away(min(nodes, o.width)); away != r.away {
		return away < r.away // distances take longer
	}
	return o.bound(set, nodes).compare(r) < 0
}

func (o order) away(width int) int {
	if width > o.width {
		return width // worse than any narrower set, whose result is below o.width
	}
	return o.width - width
}

func (r rank) compare(other rank) int {
	return cmp.Or(cmp.Compare(r.away, other.away), cmp.Compare(r.distance, other.distance),
		r.places.Compare(other.places))
}
