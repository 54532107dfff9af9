package podresources

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/component-base/metrics"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/numalet/numalet/agent/serving/nodesocket"
	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/internal/await"
)

// Config says where the services listen and what they answer from.
type Config struct {
	// Socket is the path; an existing socket is replaced.
	Socket   string
	Snapshot func() Snapshot
	// Changed receives an element after Snapshot may have changed; several changes may share one. Only
	// watches need it.
	Changed <-chan struct{}
	// Registry takes the metrics; nil: none are registered.
	Registry metrics.KubeRegistry
}

// Server serves both versions of the API and watches.
type Server struct {
	cfg      Config
	listener *nodesocket.Socket
	measures *measures
	feed     *feed
}

// New opens the socket; calls are answered in Run.
func New(cfg Config) (*Server, error) {
	m, err := newMeasures(cfg.Registry)
	if err != nil {
		return nil, err
	}
	l, err := nodesocket.Listen("pod resources", cfg.Socket)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, listener: l, measures: m, feed: newFeed(cfg.Snapshot)}, nil
}

// Run serves until ctx ends, then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	w := &watcher{feed: s.feed, measures: s.measures}
	ctx, cancel := context.WithCancel(ctx)
	w.senders.Go(func() { s.publish(ctx) })
	defer w.senders.Wait()
	defer cancel()
	return s.listener.Serve(ctx, func(server grpc.ServiceRegistrar) {
		podresourcesv1.RegisterPodResourcesListerServer(server, &lister{Server: s})
		podresourcesv1alpha1.RegisterPodResourcesListerServer(server, &oldLister{Server: s})
		watchv1.RegisterPodResourcesWatcherServer(server, w)
	}, s.listener.LimitStreams())
}

// publish refreshes on changes while there are watches. Answers to calls do not need it.
func (s *Server) publish(ctx context.Context) {
	for await.On(ctx, s.cfg.Changed) {
		if s.feed.watched() {
			s.feed.refresh()
		}
	}
}

// state returns the present state. Headers tell the caller its generation, from which it can start
// a watch.
func (s *Server) state(ctx context.Context) (*state, error) {
	now := s.feed.refresh()
	return now, grpc.SetHeader(ctx, metadata.Pairs(
		watchv1.InstanceHeader, s.feed.instance,
		watchv1.GenerationHeader, strconv.FormatUint(now.generation, 10)))
}

// lister serves v1.
type lister struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	*Server
}

func (l *lister) List(ctx context.Context, _ *podresourcesv1.ListPodResourcesRequest) (
	*podresourcesv1.ListPodResourcesResponse, error) {
	l.measures.count(l.measures.list)
	now, err := l.state(ctx)
	if err != nil {
		l.measures.listErrors.WithLabelValues("v1").Inc()
		return nil, err
	}
	return &podresourcesv1.ListPodResourcesResponse{PodResources: now.list()}, nil
}

func (l *lister) GetAllocatableResources(ctx context.Context,
	_ *podresourcesv1.AllocatableResourcesRequest) (
	*podresourcesv1.AllocatableResourcesResponse, error) {
	l.measures.count(l.measures.allocatable)
	now, err := l.state(ctx)
	if err != nil {
		l.measures.allocatableErrors.WithLabelValues("v1").Inc()
		return nil, err
	}
	return now.from.allocatable(), nil
}

func (l *lister) Get(_ context.Context, req *podresourcesv1.GetPodResourcesRequest) (
	*podresourcesv1.GetPodResourcesResponse, error) {
	l.measures.count(l.measures.get)
	pod := l.cfg.Snapshot().find(req.GetPodNamespace(), req.GetPodName())
	if pod == nil {
		l.measures.getErrors.WithLabelValues("v1").Inc()
		return nil, fmt.Errorf("pod %s in namespace %s not found",
			req.GetPodName(), req.GetPodNamespace())
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: pod}, nil
}

// oldLister serves v1alpha1, which some exporters still use: the devices of regular containers.
type oldLister struct {
	podresourcesv1alpha1.UnimplementedPodResourcesListerServer
	*Server
}

func (l *oldLister) List(context.Context, *podresourcesv1alpha1.ListPodResourcesRequest) (
	*podresourcesv1alpha1.ListPodResourcesResponse, error) {
	l.measures.total.WithLabelValues("v1alpha1").Inc()
	out := &podresourcesv1alpha1.ListPodResourcesResponse{}
	snapshot := l.cfg.Snapshot()
	for _, pod := range snapshot.sorted() {
		old := &podresourcesv1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		has := snapshot.pod(pod).Containers
		for _, c := range has[len(has)-len(pod.Spec.Containers):] { // sidecars come before
			old.Containers = append(old.Containers, oldContainer(c))
		}
		out.PodResources = append(out.PodResources, old)
	}
	return out, nil
}

func oldContainer(c *podresourcesv1.ContainerResources) *podresourcesv1alpha1.ContainerResources {
	out := &podresourcesv1alpha1.ContainerResources{Name: c.Name}
	for _, d := range c.Devices {
		out.Devices = append(out.Devices, &podresourcesv1alpha1.ContainerDevices{
			ResourceName: d.ResourceName, DeviceIds: d.DeviceIds,
		})
	}
	return out
}
