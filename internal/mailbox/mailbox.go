// Package mailbox hands values from goroutines that must not block to a goroutine that reads when it can.
package mailbox

import (
	"context"
	"sync"

	"github.com/numalet/numalet/internal/await"
)

// Box is an ordered mailbox without a bound; its readers drain it whole. Bound what is put in:
// one value per pod, not one per event.
type Box[T any] struct {
	mu     sync.Mutex // guards values
	values []T

	wake chan struct{} // capacity 1
}

// New returns an empty mailbox.
func New[T any]() *Box[T] { return &Box[T]{wake: make(chan struct{}, 1)} }

// Put appends v and wakes the reader. It never blocks.
func (b *Box[T]) Put(v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values = append(b.values, v)
	await.Wake(b.wake)
}

// Wake receives after a Put; one wake-up may stand for many.
func (b *Box[T]) Wake() <-chan struct{} { return b.wake }

// Take empties the mailbox, oldest first.
func (b *Box[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	values := b.values
	b.values = nil
	return values
}

// Each hands every value to do, until ctx ends.
func (b *Box[T]) Each(ctx context.Context, do func(T)) error {
	for await.On(ctx, b.wake) {
		for _, v := range b.Take() {
			do(v)
		}
	}
	return nil
}
