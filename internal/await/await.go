// Package await waits for an event or for the end of a context, runs functions concurrently, and
// gives channels for due times.
package await

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// On waits until c is closed or has a value, which is dropped. It reports false if ctx ended first.
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

// At returns a channel that gets a value at time t; zero: never.
func At(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}

// Earlier returns the first of two due times; zero means never.
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

// All calls f for all items concurrently, at most most at once (negative: all), and returns the
// results in the order of the items.
func All[T, R any](items []T, most int, f func(T) R) []R {
	var group errgroup.Group
	group.SetLimit(most)
	out := make([]R, len(items))
	for i, item := range items {
		group.Go(func() error {
			out[i] = f(item)
			return nil
		})
	}
	_ = group.Wait() // there are no errors
	return out
}

// Each is All for functions that only may fail; it joins their errors.
func Each[T any](items []T, most int, f func(T) error) error {
	return errors.Join(All(items, most, f)...)
}

// Wake puts a value into a channel of capacity 1 unless it has one: then the reader will look
// anyway.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
