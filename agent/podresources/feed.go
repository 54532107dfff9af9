package podresources

import (
	"crypto/rand"
	"errors"
	"sync"
)

// maxReaders bounds the watches that are open at the same time.
const maxReaders = 64

var errTooMany = errors.New("too many watches")

// feed is the state that is told and the changes that led to it. Whoever publishes waits for no
// reader: a reader is a generation, and what it has not read yet may be forgotten.
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

// refresh brings the state up to date and returns it. It looks and compares without the lock, and
// again if another state was published meanwhile.
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

// publish replaces the state by the one that the change leads to; false: it follows another one.
func (f *feed) publish(next *state, c change) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case next.generation != f.now.generation+1:
		return false
	case next.generation == 1: // there is nothing to go on from
		f.past = newHistory(next.generation)
	default:
		f.past.add(c)
	}
	f.now = next
	close(f.moved)
	f.moved = make(chan struct{})
	return true
}

// join counts a reader in; leave counts it out.
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

// watched reports whether anybody reads.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readers > 0
}

// next is the change after the generation; nil when there is none yet, until moved is closed. lost:
// it is forgotten.
func (f *feed) next(generation uint64) (c *change, lost bool, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.past.lost(generation) {
		return nil, true, f.moved
	}
	return f.past.after(generation), false, f.moved
}
