package kubeapi

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/numalet/numalet/internal/await"
)

// Again calls run until ctx ends. Whenever changed has a value, run's context ends and run is
// called again: what it knows, such as the versions of objects, is then void.
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

// Older reports whether version a precedes version b of objects of one kind; false if they cannot
// be compared.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
