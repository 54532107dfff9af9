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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/agent/kubeapi"
	"github.com/numalet/numalet/agent/source"
)

// apiService is the service of the API server, in the namespace default. Every pod is told of it.
const apiService = "kubernetes"

// services are those of the cluster that have an address, as far as an environment tells of them.
type services struct {
	client kubernetes.Interface
	want   func()          // has them followed; may be called again
	wanted <-chan struct{} // closed by want
	synced chan struct{}   // closed when they are known

	mu    sync.Mutex // guards what follows
	known bool
	all   map[string]map[string]*v1.Service // by namespace and name
}

func newServices(client kubernetes.Interface) *services {
	wanted := make(chan struct{})
	return &services{
		client: client, want: sync.OnceFunc(func() { close(wanted) }), wanted: wanted,
		synced: make(chan struct{}),
	}
}

// run follows the services, from when somebody wants them, until ctx ends.
func (s *services) run(ctx context.Context) {
	select {
	case <-s.wanted:
		s.follow(ctx)
	case <-ctx.Done():
	}
}

// forPod are those that the pod is told of. A static pod does not wait for them.
func (s *services) forPod(ctx context.Context, pod *v1.Pod) ([]*v1.Service, error) {
	if pod.Spec.EnableServiceLinks == nil {
		return nil, errors.New(
			"nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
	}
	s.want()
	if pod.Annotations[source.AnnotationSource] == source.APISource {
		select {
		case <-s.synced:
		case <-ctx.Done():
			return nil, errors.New(
				"services have not yet been read at least once, cannot construct envvars")
		}
	}
	return s.of(pod.Namespace, *pod.Spec.EnableServiceLinks), nil
}

func (s *services) follow(ctx context.Context) {
	// Those without an address have no variables.
	only := fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone)
	all := kubeapi.Selected(s.client, s.client.CoreV1().Services(metav1.NamespaceAll), only,
		nil)
	cache.NewReflectorWithOptions(all, &v1.Service{}, s,
		cache.ReflectorOptions{Name: "services"}).RunWithContext(ctx)
}

// of are the services of a namespace if the pod has links, and that of the API server.
func (s *services) of(namespace string, links bool) (out []*v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if links {
		for _, service := range s.all[namespace] {
			out = append(out, service)
		}
	}
	_, own := s.all[namespace][apiService]
	if api, has := s.all[metav1.NamespaceDefault][apiService]; has && !(links && own) {
		out = append(out, api)
	}
	slices.SortFunc(out, func(a, b *v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Add implements cache.ReflectorStore.
func (s *services) Add(found any) error {
	service, ok := found.(*v1.Service)
	if !ok {
		return errors.New("the API server sent something else than a service")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(service)
	return nil
}

func (s *services) addLocked(service *v1.Service) {
	if s.all == nil {
		s.all = map[string]map[string]*v1.Service{}
	}
	if s.all[service.Namespace] == nil {
		s.all[service.Namespace] = map[string]*v1.Service{}
	}
	// The rest may be large, and nobody looks at it.
	small := &v1.Service{Spec: v1.ServiceSpec{
		ClusterIP: service.Spec.ClusterIP, Ports: service.Spec.Ports,
	}}
	small.Namespace, small.Name = service.Namespace, service.Name
	s.all[service.Namespace][service.Name] = small
}

// Update implements cache.ReflectorStore.
func (s *services) Update(found any) error { return s.Add(found) }

// Delete implements cache.ReflectorStore.
func (s *services) Delete(found any) error {
	service, ok := found.(*v1.Service)
	if !ok {
		return errors.New("the API server sent something else than a service")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all[service.Namespace], service.Name)
	if len(s.all[service.Namespace]) == 0 {
		delete(s.all, service.Namespace)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *services) Replace(found []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
	for _, one := range found {
		if service, ok := one.(*v1.Service); ok {
			s.addLocked(service)
		}
	}
	if !s.known {
		s.known = true
		close(s.synced)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *services) Resync() error { return nil }
