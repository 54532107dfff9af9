package stats

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Callers at the same time, and within a second, share one reading.
func TestAskersShareOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		l := latest[int64]{read: func(context.Context, int64) (int64, error) {
			time.Sleep(100 * time.Millisecond)
			return reads.Add(1), nil
		}}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got, err := l.get(t.Context()); got != 1 || err != nil {
					t.Errorf("got %d, %v, want the first reading", got, err)
				}
			})
		}
		all.Wait()
		time.Sleep(fresh - 100*time.Millisecond)
		if got, _ := l.get(t.Context()); got != 1 {
			t.Errorf("within a second there was reading %d", got)
		}
		time.Sleep(fresh)
		if got, _ := l.get(t.Context()); got != 2 {
			t.Errorf("after a second it is still reading %d", got)
		}
	})
}

// If the runtime hangs, callers wait until the reading's deadline or their own. Old values stay,
// with the error.
func TestReadingThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := false
		l := latest[string]{read: func(ctx context.Context, last string) (string, error) {
			if !hang {
				return "first", nil
			}
			<-ctx.Done()
			return last, ctx.Err()
		}}
		if _, err := l.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * fresh)
		hang = true
		begin := time.Now()
		ended := make(chan struct{})
		go func() { // its client disconnects, and the others get the reading all the same
			defer close(ended)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = l.get(ctx)
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, _ := l.get(short); got != "first" || time.Since(begin) != time.Second {
			t.Errorf("who has a second got %q after %s", got, time.Since(begin))
		}
		got, err := l.get(t.Context())
		if got != "first" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v, want what was known, and why it is no newer", got, err)
		}
		if took := time.Since(begin); took != patience {
			t.Errorf("it took %s, want %s", took, patience)
		}
		<-ended
	})
}
