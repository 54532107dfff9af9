package podresources

// Bounds of the history for readers that continue at their position. Together with the number of
// readers they bound the memory for watches, however slow the readers are.
const (
	maxChanges = 1024
	maxWeight  = 1 << 16 // see change.weight; a device takes a few hundred bytes at most
)

// history holds the latest changes, one for each generation without gaps.
type history struct {
	changes []change
	weight  int
	// known is the earliest generation whose next change is kept.
	known uint64

	maxChanges, maxWeight int
}

func newHistory(generation uint64) history {
	return history{known: generation, maxChanges: maxChanges, maxWeight: maxWeight}
}

// add appends the change to the next generation and drops the oldest ones beyond the bounds. Of a
// change heavier than a quarter of the bound it keeps only that it happened.
func (h *history) add(c change) {
	if c.weight() > h.maxWeight/4 {
		c = change{generation: c.generation, whole: true}
	}
	h.changes = append(h.changes, c)
	h.weight += c.weight()
	for len(h.changes) > h.maxChanges || h.weight > h.maxWeight {
		h.weight -= h.changes[0].weight()
		h.changes[0] = change{} // its array stays allocated for a while
		h.changes = h.changes[1:]
		h.known++
	}
}

// lost reports whether the change after the generation was dropped.
func (h *history) lost(generation uint64) bool { return generation < h.known }

// after returns the change after a generation that is not lost; nil if there is none yet.
func (h *history) after(generation uint64) *change {
	if i := generation - h.known; i < uint64(len(h.changes)) {
		return new(h.changes[i])
	}
	return nil
}
