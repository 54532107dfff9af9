package podresources

import (
	"crypto/rand"
	"errors"
	"sync"
)

// maxReaders bounds the concurrent watches.
const maxReaders = 64

var errTooMany = errors.New("too many watches")

// feed holds the present state and the changes that led to it. Publishing waits for no reader: a
// reader is only a generation, and changes that it has not read may be dropped.
type feed struct {
	instance string
	snapshot func() Snapshot

	mu      sync.Mutex // guards the fields below
	now     *state
	past    history
	moved   chan struct{} // closed when now is replaced
	readers int
}

func newFeed(snapshot func() Snapshot) *feed {
	return &feed{
		instance: rand.Text(), snapshot: snapshot,
		now: &state{}, moved: make(chan struct{}),
	}
}

// refresh updates the state and returns it. It takes the snapshot and compares without the lock,
// and starts again if another state was published meanwhile.
func (f *feed) refresh() *state {
	for {
		before, next := f.state(), f.snapshot().state()
		c, changed := follow(before, next)
		if !changed && before.generation > 0 {
			return before
		}
		if f.publish(next, c) {
			return next
		}
	}
}

func (f *feed) state() *state {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// publish replaces the state by next; false: the state has changed since the comparison.
func (f *feed) publish(next *state, c change) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case next.generation != f.now.generation+1:
		return false
	case next.generation == 1: // the history starts here
		f.past = newHistory(next.generation)
	default:
		f.past.add(c)
	}
	f.now = next
	close(f.moved)
	f.moved = make(chan struct{})
	return true
}

// join counts a new reader; leave removes it.
func (f *feed) join() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == maxReaders {
		return errTooMany
	}
	f.readers++
	return nil
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers--
}

// watched reports whether there are readers.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readers > 0
}

// next returns the change after the generation. It is nil if there is none until moved is closed,
// or if it was dropped (lost).
func (f *feed) next(generation uint64) (c *change, lost bool, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.past.lost(generation) {
		return nil, true, f.moved
	}
	return f.past.after(generation), false, f.moved
}
