package await

import (
	"context"
	"sync"
)

// Tasks runs functions that are given to it at any time, each in a goroutine: functions that come
// before Run begin with it, and after its end none begins. The zero Tasks is ready for use.
type Tasks struct {
	mu      sync.Mutex // guards the fields below
	ctx     context.Context
	phase   phase
	early   []func(context.Context)
	running sync.WaitGroup
}

type phase int

const (
	before phase = iota
	during
	after
)

// Run runs functions until ctx ends and all of them have returned. It is called once.
func (t *Tasks) Run(ctx context.Context) {
	t.enter(ctx, during)
	<-ctx.Done()
	t.enter(ctx, after) // nothing is added to what is waited for
	t.running.Wait()
}

func (t *Tasks) enter(ctx context.Context, p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase, t.ctx = p, ctx
	for _, begin := range t.early {
		begin(ctx)
	}
	t.early = nil
}

// Go runs f with a context that ends with Run's, or when stop is called; f does not begin after
// that.
func (t *Tasks) Go(f func(context.Context)) (stop context.CancelFunc) {
	own, stop := context.WithCancel(context.Background())
	begin := func(ctx context.Context) {
		if own.Err() != nil {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		context.AfterFunc(own, cancel)
		t.running.Go(func() {
			defer cancel()
			f(ctx)
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.phase {
	case before:
		t.early = append(t.early, begin)
	case during:
		begin(t.ctx)
	case after:
	}
	return stop
}
