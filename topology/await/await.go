// Package await waits for one thing, or for a context to end.
package await

import (
	"context"
	"time"
)

// On waits until c has a value, which is dropped, or is closed. It reports false if ctx ended first.
func On[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// For waits for d. It reports false if ctx ended first.
func For(ctx context.Context, d time.Duration) bool { return On(ctx, time.After(d)) }

// Send waits until c takes v. It reports false if ctx ended first.
func Send[T any](ctx context.Context, c chan<- T, v T) bool {
	select {
	case c <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wake puts a value into a channel of capacity 1 unless there is one already: the reader is going to
// look anyway.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
