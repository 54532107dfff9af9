package podresources

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/numalet/numalet/agent/podresources/watchv1"
	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/topology/bounded"
	"github.com/numalet/numalet/topology/files"
)

// The kubelet's limit on calls, so that a client in a loop cannot keep the agent busy.
const (
	maxQPS   = 100
	maxBurst = 10
)

// maxStreams bounds the calls of one connection that are under way: a watch that was ended stays
// one until its client has read that.
const maxStreams = 250

// A client that does not answer pings is disconnected.
const (
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
)

// Config is where the services are and what they answer from.
type Config struct {
	// Socket is the path; a socket that is there is replaced.
	Socket   string
	Snapshot func() Snapshot
	// Changed gets a value after Snapshot may have changed; several changes may give one. Only
	// watches need it.
	Changed <-chan struct{}
	// Registry gets the metrics; nil for none.
	Registry metrics.KubeRegistry
}

// Server serves both versions of the API.
type Server struct {
	cfg      Config
	listener net.Listener
	measures *measures
	feed     *feed
}

// New listens; nobody is answered before Run.
func New(cfg Config) (*Server, error) {
	if err := files.Remove(cfg.Socket); err != nil {
		return nil, fmt.Errorf("replace the pod resources socket: %w", err)
	}
	m, err := newMeasures(cfg.Registry)
	if err != nil {
		return nil, err
	}
	l, err := socket.Listen(cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("serve pod resources: %w; a shorter --root-dir may help", err)
	}
	return &Server{cfg: cfg, listener: l, measures: m, feed: newFeed(cfg.Snapshot)}, nil
}

// Run serves until ctx ends, then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	limiter := rate.NewLimiter(maxQPS, maxBurst)
	limit := func() error {
		if !limiter.Allow() {
			return status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return nil
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (any, error) {
			if err := limit(); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			handler grpc.StreamHandler) error {
			if err := limit(); err != nil {
				return err
			}
			return handler(srv, stream)
		}))
	w := &watcher{feed: s.feed, measures: s.measures}
	podresourcesv1.RegisterPodResourcesListerServer(server, &lister{Server: s})
	podresourcesv1alpha1.RegisterPodResourcesListerServer(server, &oldLister{Server: s})
	watchv1.RegisterPodResourcesWatcherServer(server, w)

	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	w.senders.Go(func() { s.publish(ctx) })
	defer w.senders.Wait()
	defer cancel()
	err := server.Serve(bounded.Listener(s.listener, bounded.Connections()))
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pod resources on %s: %w", s.cfg.Socket, err)
	}
	return nil
}

// publish follows the changes while somebody watches. Answers are up to date without it.
func (s *Server) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.Changed:
			if s.feed.watched() {
				s.feed.refresh()
			}
		}
	}
}

// state is what there is to answer now. The caller learns its generation from the headers, and can
// watch from there.
func (s *Server) state(ctx context.Context) (*state, error) {
	now := s.feed.refresh()
	return now, grpc.SetHeader(ctx, metadata.Pairs(
		watchv1.InstanceHeader, s.feed.instance,
		watchv1.GenerationHeader, strconv.FormatUint(now.generation, 10)))
}

// lister is the v1 service.
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

// oldLister is the v1alpha1 service, which some exporters still ask: the devices of regular
// containers.
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
