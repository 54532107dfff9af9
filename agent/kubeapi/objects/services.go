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
	wanted bool          // guarded by Objects.mu
	synced chan struct{} // closed when they are known

	mu    sync.Mutex
	known bool
	all   map[string]map[string]*v1.Service // by namespace and name
}

func newServices() *services {
	return &services{synced: make(chan struct{})}
}

// servicesFor are those that the pod is told of. A static pod does not wait for them.
func (o *Objects) servicesFor(ctx context.Context, pod *v1.Pod) ([]*v1.Service, error) {
	if pod.Spec.EnableServiceLinks == nil {
		return nil, errors.New(
			"nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
	}
	o.wantServices()
	if pod.Annotations[source.AnnotationSource] == source.APISource {
		select {
		case <-o.services.synced:
		case <-ctx.Done():
			return nil, errors.New(
				"services have not yet been read at least once, cannot construct envvars")
		}
	}
	return o.services.of(pod.Namespace, *pod.Spec.EnableServiceLinks), nil
}

func (o *Objects) wantServices() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.services.wanted {
		o.services.wanted = true
		o.followServicesLocked()
	}
}

func (o *Objects) followServicesLocked() {
	if ctx := o.ctx; ctx != nil && ctx.Err() == nil {
		o.followers.Go(func() { o.services.follow(ctx, o.cfg.Client) })
	}
}

func (s *services) follow(ctx context.Context, client kubernetes.Interface) {
	// Those without an address have no variables.
	only := fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone)
	all := kubeapi.Selected(client, client.CoreV1().Services(metav1.NamespaceAll), only)
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
