// Package await waits for one thing, or for a context to end, and for several that go on side by side,
// and says when something is due.
package await

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
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

// At returns a channel that gets a value at a time; zero: never.
func At(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// Earlier is the first of two times at which something is due; zero is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Send waits until c takes v. It reports false if ctx ended first.
func Send[T any](ctx context.Context, c chan<- T, v T) bool {
	select {
	case c <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// Each calls f for each of the items side by side, most of them at once (negative: all), and joins
// what they return in the order of the items: no error hides another one.
func Each[T any](items []T, most int, f func(T) error) error {
	var group errgroup.Group
	group.SetLimit(most)
	errs := make([]error, len(items))
	for i, item := range items {
		group.Go(func() error {
			errs[i] = f(item)
			return nil
		})
	}
	_ = group.Wait() // every error is in errs
	return errors.Join(errs...)
}

// Wake puts a value into a channel of capacity 1 unless there is one already: the reader is going to
// look anyway.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
