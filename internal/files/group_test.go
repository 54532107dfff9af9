package files

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestGroup: callers that come during a write are written together, in order, and get its error. One whose context
// ends while it waits is not written.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[string]()
		var written [][]string
		hold, full := make(chan struct{}), errors.New("the disk is full")
		write := func(items []string) error {
			written = append(written, slices.Clone(items))
			<-hold
			if slices.Contains(items, "c") {
				return full
			}
			return nil
		}
		results := map[string]chan error{}
		start := func(ctx context.Context, item string) {
			done := make(chan error, 1)
			results[item] = done
			go func() { done <- g.Write(ctx, item, write) }()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		start(t.Context(), "a")
		start(ctx, "withdrawn")
		start(t.Context(), "b")
		start(t.Context(), "c")
		cancel()
		if err := <-results["withdrawn"]; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller whose context ended got %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		hold <- struct{}{}
		synctest.Wait()
		start(ctx, "d")
		cancel()
		synctest.Wait()
		hold <- struct{}{}
		for item, want := range map[string]error{"a": nil, "b": full, "c": full, "d": context.Canceled} {
			if err := <-results[item]; !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", item, err, want)
			}
		}
		want := [][]string{{"a"}, {"b", "c"}}
		if !slices.EqualFunc(written, want, slices.Equal) {
			t.Errorf("written were %v, want %v", written, want)
		}
	})
}

// TestClosedGroup: Close waits for the write in progress, and refuses who waits and who comes.
func TestClosedGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int]()
		hold := make(chan struct{})
		write := func([]int) error { <-hold; return nil }
		first, second, closed := make(chan error, 1), make(chan error, 1), make(chan struct{})
		go func() { first <- g.Write(t.Context(), 1, write) }()
		synctest.Wait()
		go func() { g.Close(); close(closed) }()
		synctest.Wait()
		go func() { second <- g.Write(t.Context(), 2, write) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("it was closed during a write")
		default:
		}
		close(hold)
		<-closed
		if err := <-first; err != nil {
			t.Errorf("the write in progress: %v", err)
		}
		if err := <-second; !errors.Is(err, ErrClosed) {
			t.Errorf("the write that waited: %v", err)
		}
		if err := g.Write(t.Context(), 3, write); !errors.Is(err, ErrClosed) {
			t.Errorf("a later write: %v", err)
		}
	})
}
