package await

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// What comes before Run begins with it, and what was stopped does not; what comes later begins at
// once, and nothing after the end. Run waits for all.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			tasks Tasks
			mu    sync.Mutex
			log   []string
		)
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, what)
		}
		task := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				note(name + " begins")
				<-ctx.Done()
				note(name + " ends")
			}
		}
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if slices.Sort(log); !slices.Equal(log, want) {
				t.Errorf("%s: %q, want %q", what, log, want)
			}
			log = nil
		}
		early, never := tasks.Go(task("early")), tasks.Go(task("never"))
		never()
		expect("before Run")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			tasks.Run(ctx)
			note("Run returns")
		}()
		expect("with Run", "early begins")
		tasks.Go(task("late"))
		expect("during Run", "late begins")
		early()
		expect("stopped", "early ends")
		cancel()
		expect("the end", "Run returns", "late ends")
		tasks.Go(task("after"))
		expect("after Run")
	})
}
