package cri

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

// A start goes on for a while after its caller has gone, and ends then.
func TestOutlasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("over")
		ctx, goAway := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		longer, cancel := outlasting(ctx, 10*time.Second)
		defer cancel()
		if longer.Value(key{}) != "value" {
			t.Error("it lost its values")
		}
		goAway(over)
		time.Sleep(9 * time.Second)
		if longer.Err() != nil {
			t.Errorf("it ended with its caller: %v", longer.Err())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if context.Cause(longer) != over {
			t.Errorf("it ended with %v", context.Cause(longer))
		}
	})
}

// The end of a call ends all that waits for its caller.
func TestOutlastingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it fails if a goroutine is left
		ctx, goAway := context.WithCancel(t.Context())
		longer, cancel := outlasting(ctx, time.Hour)
		goAway()
		cancel()
		if longer.Err() == nil {
			t.Error("it goes on")
		}
	})
}
