package cluster_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/test/cluster/rig"
)

// follow calls tell with each state of objects of a resource in a namespace, as a watcher sees it,
// until the test ends; deleted ones as gone.
func follow[T runtime.Object](t *testing.T, c rig.Cluster, resource, namespace string,
	tell func(is T, gone bool)) {
	t.Helper()
	followOf(t, c.Client.CoreV1().RESTClient(), resource, namespace, tell)
}

// followOf is follow for the objects of another group of the API.
func followOf[T runtime.Object](t *testing.T, group cache.Getter, resource, namespace string,
	tell func(is T, gone bool)) {
	t.Helper()
	var kind T
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(group, resource, namespace, fields.Everything()),
		ObjectType:    kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(now any) { tell(now.(T), false) },
			UpdateFunc: func(_, now any) { tell(now.(T), false) },
			DeleteFunc: func(last any) {
				if unseen, is := last.(cache.DeletedFinalStateUnknown); is {
					last = unseen.Obj
				}
				tell(last.(T), true)
			},
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}
