package objects

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// apiService is the service of the API server, in the namespace default. It is in every pod's
// environment.
const apiService = "kubernetes"

// services holds the cluster's services with an address, as far as environments need them.
type services struct {
	client kubernetes.Interface
	want   func()          // has them followed; may be called again
	wanted <-chan struct{} // closed by want
	know   func()          // closes synced; may be called again
	synced <-chan struct{} // closed when they are known
	all    cache.Indexer   // by namespace
}

func newServices(client kubernetes.Interface) *services {
	wanted, synced := make(chan struct{}), make(chan struct{})
	return &services{
		client: client, want: sync.OnceFunc(func() { close(wanted) }), wanted: wanted,
		know: sync.OnceFunc(func() { close(synced) }), synced: synced,
		all: cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
}

// run follows the services, once they are needed, until ctx ends.
func (s *services) run(ctx context.Context) {
	if await.On(ctx, s.wanted) {
		s.follow(ctx)
	}
}

// forPod returns the services in the pod's environment. A static pod does not wait for them.
func (s *services) forPod(ctx context.Context, pod *v1.Pod) ([]*v1.Service, error) {
	if pod.Spec.EnableServiceLinks == nil {
		return nil, errors.New(
			"nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
	}
	s.want()
	if pod.Annotations[podspec.AnnotationSource] == podspec.APISource && !await.On(ctx, s.synced) {
		return nil, errors.New(
			"services have not yet been read at least once, cannot construct envvars")
	}
	return s.of(pod.Namespace, *pod.Spec.EnableServiceLinks), nil
}

func (s *services) follow(ctx context.Context) {
	// Those without an address have no variables.
	only := fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone)
	all := kubeapi.Selected(s.client, s.client.CoreV1().Services(metav1.NamespaceAll), only, nil)
	cache.NewReflectorWithOptions(all, &v1.Service{}, kubeapi.Store[*v1.Service]{
		Put:  func(one *v1.Service) error { return s.all.Update(small(one)) },
		Drop: func(one *v1.Service) error { return s.all.Delete(one) },
		All:  s.replace,
	}, cache.ReflectorOptions{Name: "services"}).RunWithContext(ctx)
}

func (s *services) replace(found []*v1.Service) error {
	all := make([]any, len(found))
	for i, one := range found {
		all[i] = small(one)
	}
	defer s.know()
	return s.all.Replace(all, "")
}

// small returns what is kept of a service: the rest may be large.
func small(service *v1.Service) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name},
		Spec:       v1.ServiceSpec{ClusterIP: service.Spec.ClusterIP, Ports: service.Spec.Ports},
	}
}

// of returns the services of a namespace if the pod has links, and that of the API server.
func (s *services) of(namespace string, links bool) (out []*v1.Service) {
	// The lister fails with what is not there alone.
	lister := corelisters.NewServiceLister(s.all)
	if links {
		out, _ = lister.Services(namespace).List(labels.Everything())
	}
	_, none := lister.Services(namespace).Get(apiService)
	api, err := lister.Services(metav1.NamespaceDefault).Get(apiService)
	if own := none == nil; err == nil && !(links && own) {
		out = append(out, api)
	}
	slices.SortFunc(out, func(a, b *v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
