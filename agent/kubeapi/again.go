package kubeapi

import (
	"context"
	"sync"

	"github.com/numalet/numalet/topology/await"
)

// Again has run go on until ctx ends. Whenever changed has a value, run is ended and begins anew:
// what it knows, the versions of objects for example, means nothing then.
func Again(ctx context.Context, changed <-chan struct{}, run func(context.Context)) {
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { run(inner) })
		await.On(ctx, changed)
		cancel()
		running.Wait()
	}
}
