package watchertest

import (
	"context"
	"sync"
	"testing"

	"k8s.io/klog/v2/ktesting"

	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/test/scratch"
)

// Watch runs a watcher of a plugin registry with the handler for a type of plugins, and run beside
// it, until the test ends. It returns the registry.
func Watch(t testing.TB, kind string, handler watcher.Handler,
	run func(context.Context) error) (registry string) {
	t.Helper()
	registry = scratch.Dir(t)
	watch, err := watcher.New(watcher.Config{
		Dir: registry, Handlers: map[string]watcher.Handler{kind: handler},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{run, watch.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return registry
}
