package turns

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// One goroutine at a time has the turn of a key, other keys are free, and nothing is kept.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns[string]
		take := func(k string) func() {
			done, err := turns.Take(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		first := take("a")
		take("b")()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		second := false
		var waiting sync.WaitGroup
		waiting.Go(func() {
			done := take("a")
			second = true
			done()
		})
		synctest.Wait()
		if second {
			t.Error("two have the turn")
		}
		first()
		waiting.Wait()
		if !second || len(turns.all) > 0 {
			t.Errorf("the second has had it: %t; kept %v", second, turns.all)
		}
	})
}
