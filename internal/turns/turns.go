// Package turns lets one goroutine at a time work on a thing that has a name.
package turns

import (
	"context"
	"sync"
)

// Turns has a turn for each key. It knows only keys that somebody works on or waits for. The zero
// value is ready, and safe for concurrent use.
type Turns[K comparable] struct {
	mu  sync.Mutex // guards all, and callers of each
	all map[K]*turn
}

type turn struct {
	held    chan struct{} // has an element while somebody holds the turn
	callers int           // those who hold it or wait for it
}

// Take waits until nobody else works on k, or until ctx ends. done gives the turn back.
func (t *Turns[K]) Take(ctx context.Context, k K) (done func(), err error) {
	of := t.call(k)
	select {
	case of.held <- struct{}{}:
		return func() {
			<-of.held
			t.called(k, of)
		}, nil
	case <-ctx.Done():
		t.called(k, of)
		return nil, ctx.Err()
	}
}

func (t *Turns[K]) call(k K) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.all[k]
	if of == nil {
		if t.all == nil {
			t.all = map[K]*turn{}
		}
		of = &turn{held: make(chan struct{}, 1)}
		t.all[k] = of
	}
	of.callers++
	return of
}

func (t *Turns[K]) called(k K, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.callers--; of.callers == 0 {
		delete(t.all, k)
	}
}
