package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// The kubelet's limit on calls, so that a client in a loop cannot keep the agent busy.
const (
	maxQPS   = 100
	maxBurst = 10
)

// Config is where the services are and what they answer from.
type Config struct {
	// Socket is the path; a socket that is there is replaced.
	Socket   string
	Snapshot func() Snapshot
	// Registry gets the metrics; nil for none.
	Registry metrics.KubeRegistry
}

// Server serves both versions of the API.
type Server struct {
	cfg      Config
	listener net.Listener
	measures *measures
}

// New listens; nobody is answered before Run.
func New(cfg Config) (*Server, error) {
	if err := os.Remove(cfg.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace the pod resources socket: %w", err)
	}
	m, err := newMeasures(cfg.Registry)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("serve pod resources: %w; a shorter --root-dir may help", err)
	}
	return &Server{cfg: cfg, listener: l, measures: m}, nil
}

// Run serves until ctx ends, then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	limiter := rate.NewLimiter(maxQPS, maxBurst)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any,
		_ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !limiter.Allow() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handler(ctx, req)
	}))
	podresourcesv1.RegisterPodResourcesListerServer(server, &lister{Server: s})
	podresourcesv1alpha1.RegisterPodResourcesListerServer(server, &oldLister{Server: s})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(s.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pod resources on %s: %w", s.cfg.Socket, err)
	}
	return nil
}

// lister is the v1 service.
type lister struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	*Server
}

func (l *lister) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (
	*podresourcesv1.ListPodResourcesResponse, error) {
	l.measures.count(l.measures.list, "v1")
	return &podresourcesv1.ListPodResourcesResponse{PodResources: l.cfg.Snapshot().list()}, nil
}

func (l *lister) GetAllocatableResources(context.Context,
	*podresourcesv1.AllocatableResourcesRequest) (
	*podresourcesv1.AllocatableResourcesResponse, error) {
	l.measures.count(l.measures.allocatable, "v1")
	return l.cfg.Snapshot().allocatable(), nil
}

func (l *lister) Get(_ context.Context, req *podresourcesv1.GetPodResourcesRequest) (
	*podresourcesv1.GetPodResourcesResponse, error) {
	l.measures.count(l.measures.get, "v1")
	pod := l.cfg.Snapshot().find(req.GetPodNamespace(), req.GetPodName())
	if pod == nil {
		l.measures.getErrors.WithLabelValues("v1").Inc()
		return nil, fmt.Errorf("pod %s in namespace %s not found",
			req.GetPodName(), req.GetPodNamespace())
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: pod}, nil
}

// oldLister is the v1alpha1 service, which some exporters still ask: devices only, ids grouped by
// resource.
type oldLister struct {
	podresourcesv1alpha1.UnimplementedPodResourcesListerServer
	*Server
}

func (l *oldLister) List(context.Context, *podresourcesv1alpha1.ListPodResourcesRequest) (
	*podresourcesv1alpha1.ListPodResourcesResponse, error) {
	l.measures.count(l.measures.list, "v1alpha1")
	out := &podresourcesv1alpha1.ListPodResourcesResponse{}
	snapshot := l.cfg.Snapshot()
	for _, pod := range snapshot.list() {
		old := &podresourcesv1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for _, c := range pod.Containers {
			old.Containers = append(old.Containers, &podresourcesv1alpha1.ContainerResources{
				Name: c.Name, Devices: grouped(c.Devices),
			})
		}
		out.PodResources = append(out.PodResources, old)
	}
	return out, nil
}

// grouped joins the entries of one resource; a device of several nodes counts once.
func grouped(devices []*podresourcesv1.ContainerDevices) []*podresourcesv1alpha1.ContainerDevices {
	var out []*podresourcesv1alpha1.ContainerDevices
	seen := map[string]bool{}
	for _, d := range devices {
		if len(out) == 0 || out[len(out)-1].ResourceName != d.ResourceName {
			out = append(out, &podresourcesv1alpha1.ContainerDevices{ResourceName: d.ResourceName})
			clear(seen)
		}
		for _, id := range d.DeviceIds {
			if !seen[id] {
				seen[id] = true
				last := out[len(out)-1]
				last.DeviceIds = append(last.DeviceIds, id)
			}
		}
	}
	return out
}

// measures count calls, with the kubelet's names.
type measures struct {
	total, list, get, allocatable, getErrors *metrics.CounterVec
}

func newMeasures(registry metrics.KubeRegistry) (*measures, error) {
	counter := func(name, help string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_" + name, Help: help,
			StabilityLevel: metrics.ALPHA,
		}, []string{"server_api_version"})
	}
	m := &measures{
		total:       counter("requests_total", "Calls of the pod resources API."),
		list:        counter("requests_list", "Calls of List."),
		get:         counter("requests_get", "Calls of Get."),
		allocatable: counter("requests_get_allocatable", "Calls of GetAllocatableResources."),
		getErrors:   counter("errors_get", "Calls of Get that failed."),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []metrics.Registerable{m.total, m.list, m.get, m.allocatable, m.getErrors} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metric %s: %w", c.FQName(), err)
		}
	}
	return m, nil
}

func (m *measures) count(call *metrics.CounterVec, version string) {
	m.total.WithLabelValues(version).Inc()
	call.WithLabelValues(version).Inc()
}
