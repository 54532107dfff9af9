package await

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Each wait ends with its event or with its context.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		closed, never := make(chan struct{}), make(chan int)
		close(closed)
		if !On(ctx, closed) || !For(ctx, time.Second) || !Send(ctx, make(chan int, 1), 1) {
			t.Error("waited in vain for what there is")
		}
		if On(ctx, never) || For(ctx, time.Hour) || Send(ctx, never, 1) {
			t.Error("what never comes has come")
		}
	})
}

// One value stands for many.
func TestWake(t *testing.T) {
	c := make(chan struct{}, 1)
	Wake(c)
	Wake(c)
	if <-c; len(c) != 0 {
		t.Error("two values")
	}
}
