package kubeapi

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/numalet/numalet/internal/await"
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

// Older reports whether version a is before version b of objects of one kind. Versions that cannot be
// compared are not.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
