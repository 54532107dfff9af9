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

// Each calls f for all items concurrently, at most most at once (negative: all), and joins the
// errors in the order of the items.
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

// Wake puts a value into a channel of capacity 1 unless it has one: then the reader will look
// anyway.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
