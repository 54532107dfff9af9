package kubeapi

import (
	"context"

	"github.com/numalet/numalet/topology/await"
)

// Again has run follow objects of the API server until ctx ends. When restored says that these are
// older than they were, run is ended and begins anew: versions that it knows mean nothing then.
func Again(ctx context.Context, restored <-chan struct{}, run func(context.Context)) {
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(inner)
		}()
		await.On(ctx, restored)
		cancel()
		<-done
	}
}
