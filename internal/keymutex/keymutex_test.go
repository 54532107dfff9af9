package keymutex

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// One goroutine at a time has the lock of a key, other keys are free, and nothing is kept.
func TestMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mutex Mutex[string]
		take := func(k string) func() {
			unlock, err := mutex.Lock(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			return unlock
		}
		first := take("a")
		take("b")()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := mutex.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		second := false
		var waiting sync.WaitGroup
		waiting.Go(func() {
			unlock := take("a")
			second = true
			unlock()
		})
		synctest.Wait()
		if second {
			t.Error("two have the lock")
		}
		first()
		waiting.Wait()
		if !second || len(mutex.all) > 0 {
			t.Errorf("the second has had it: %t; kept %v", second, mutex.all)
		}
	})
}
