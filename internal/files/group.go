package files

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the error of a write to a Group that was closed.
var ErrClosed = errors.New("closed")

// Group has callers that write at the same time share one write: the first writes for all that wait. It has no
// goroutine.
type Group[T any] struct {
	turn chan struct{} // capacity 1; holds an element during a write, and after Close

	mu      sync.Mutex // guards the fields below
	waiting []*queued[T]
	closed  bool
}

// queued is an item of a caller that waits.
type queued[T any] struct {
	item T
	done chan struct{}
	err  error // valid once done is closed
}

// NewGroup returns a group without callers.
func NewGroup[T any]() *Group[T] { return &Group[T]{turn: make(chan struct{}, 1)} }

// Write has write called with the item, by this caller or another one, and perhaps with items of others before and
// after it, in the order of the calls. It returns write's error. An item that has to wait when ctx ends is not
// written.
func (g *Group[T]) Write(ctx context.Context, item T, write func([]T) error) error {
	own := &queued[T]{item: item, done: make(chan struct{})}
	if !g.enqueue(own) {
		return ErrClosed
	}
	select {
	case g.turn <- struct{}{}:
		g.write(write)
		<-g.turn
	case <-own.done:
	case <-ctx.Done():
		if g.withdraw(own) {
			return ctx.Err()
		}
	}
	<-own.done // another caller may be writing it
	return own.err
}

// Close waits for the write in progress and refuses all further ones.
func (g *Group[T]) Close() {
	g.turn <- struct{}{}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, q := range g.waiting {
		q.err = ErrClosed
		close(q.done)
	}
	g.waiting = nil
}

// write writes all that wait; the caller has the turn.
func (g *Group[T]) write(write func([]T) error) {
	all := g.take()
	if len(all) == 0 {
		return
	}
	items := make([]T, len(all))
	for i, q := range all {
		items[i] = q.item
	}
	err := write(items)
	for _, q := range all {
		q.err = err
		close(q.done)
	}
}

func (g *Group[T]) enqueue(q *queued[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.waiting = append(g.waiting, q)
	return true
}

func (g *Group[T]) take() []*queued[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.waiting
	g.waiting = nil
	return all
}

// withdraw takes back an item that is not being written.
func (g *Group[T]) withdraw(own *queued[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.waiting {
		if q == own {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}
