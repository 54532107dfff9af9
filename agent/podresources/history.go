package podresources

// The bounds of what is remembered for readers that go on where they were. Together with the
// number of readers they bound the memory that watching takes, however slowly readers read.
const (
	maxChanges = 1024
	maxWeight  = 1 << 16 // see change.weight; a device is some hundred bytes at most
)

// history is the latest changes, one for each generation without a gap.
type history struct {
	changes []change
	weight  int
	// known is the earliest generation from which the changes are there.
	known uint64

	maxChanges, maxWeight int
}

func newHistory(generation uint64) history {
	return history{known: generation, maxChanges: maxChanges, maxWeight: maxWeight}
}

// add appends the change to the next generation and forgets the oldest ones over the bounds. Of
// one that would push out a quarter of all it keeps only that there was one.
func (h *history) add(c change) {
	if c.weight() > h.maxWeight/4 {
		c = change{generation: c.generation, whole: true}
	}
	h.changes = append(h.changes, c)
	h.weight += c.weight()
	for len(h.changes) > h.maxChanges || h.weight > h.maxWeight {
		h.weight -= h.changes[0].weight()
		h.changes[0] = change{} // the array lives on for a while
		h.changes = h.changes[1:]
		h.known++
	}
}

// lost reports whether changes after the generation are forgotten.
func (h *history) lost(generation uint64) bool { return generation < h.known }

// after is the change that follows a generation that is not lost; nil when there is none yet.
func (h *history) after(generation uint64) *change {
	if i := generation - h.known; i < uint64(len(h.changes)) {
		return new(h.changes[i])
	}
	return nil
}
