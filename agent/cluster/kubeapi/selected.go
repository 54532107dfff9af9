package kubeapi

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/internal/oneline"
)

// Resource can be listed and watched, such as client.CoreV1().Pods(namespace); L is the type of its
// lists.
type Resource[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Selected lists and watches the objects of a resource that a field selector picks. Its errors are
// one line, as a reflector logs them; failed, unless nil, gets them too.
func Selected[L runtime.Object](client kubernetes.Interface, resource Resource[L],
	only fields.Selector, failed func(error)) cache.ListerWatcher {
	selector := only.String()
	short := func(err error) error {
		if err != nil && failed != nil {
			failed(err)
		}
		return requests.Short(err)
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
			error) {
			o.FieldSelector = selector
			found, err := resource.List(ctx, o)
			if err == nil {
				err = checkList(found)
			}
			return found, short(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
			error) {
			o.FieldSelector = selector
			w, err := resource.Watch(ctx, o)
			if err != nil {
				return nil, short(err)
			}
			return watch.Filter(w, shortEvent), nil
		},
	}, client)
}

// checkList refuses an answer that is no list: a client makes an empty list of "{}", and of an
// object of another kind, and believing that would end everything that runs.
func checkList(found runtime.Object) error {
	list, err := meta.ListAccessor(found)
	if err != nil {
		return err
	}
	return checkVersion(list.GetResourceVersion())
}

func checkVersion(of string) error {
	if of == "" {
		return errors.New("the API server's answer is no list: it has no resource version")
	}
	return nil
}

// shortEvent shortens the API server's message at the end of a watch.
func shortEvent(e watch.Event) (watch.Event, bool) {
	if said, ok := e.Object.(*metav1.Status); ok {
		said.Message = oneline.Of(said.Message)
	}
	return e, true
}
