package podsapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/serving/nodesocket"
	"github.com/numalet/numalet/internal/metric"
)

// Config says where the service listens.
type Config struct {
	// Socket is the path; an existing socket is replaced, a missing directory created.
	Socket string
	// Registry takes the metrics; nil: nothing is counted.
	Registry metrics.KubeRegistry
}

// Server serves the API from the reported changes of pods.
type Server struct {
	listener *nodesocket.Socket
	feed     *feed
	requests measures
}

// measures counts calls by their status codes.
type measures struct {
	metric.Set
	all, list, get, watch *metrics.CounterVec
	dropped               *metrics.Counter
}

func newMeasures() measures {
	var m measures
	counter := func(name, help string) *metrics.CounterVec {
		return m.Counters(name, help, "server_api_version", "status_code")
	}
	m.all = counter("kubelet_pod_requests_total", "Calls of the Pods API.")
	m.list = counter("kubelet_pod_requests_list_total", "Calls of ListPods of the Pods API.")
	m.get = counter("kubelet_pod_requests_get_total", "Calls of GetPod of the Pods API.")
	m.watch = counter("kubelet_pod_requests_watch_total", "Calls of WatchPods of the Pods API.")
	m.dropped = m.Counter("kubelet_pod_watch_events_dropped_total",
		"Events that a watcher of the Pods API was too slow for, each its last.")
	return m
}

// count counts a call that ended with the error.
func (m *measures) count(call *metrics.CounterVec, err error) {
	code := status.Code(err).String()
	m.all.WithLabelValues("v1alpha1", code).Inc()
	call.WithLabelValues("v1alpha1", code).Inc()
}

// New opens the socket; calls are answered in Run.
func New(c Config) (*Server, error) {
	requests := newMeasures()
	if err := requests.Register(c.Registry); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of the Pods API: %w", err)
	}
	listener, err := nodesocket.Listen("the Pods API", c.Socket)
	if err != nil {
		return nil, err
	}
	return &Server{listener: listener, feed: newFeed(requests.dropped), requests: requests}, nil
}

// Wrote records what was written for a pod; calls about one pod must not overlap. It never blocks.
func (s *Server) Wrote(c podstatus.Change) { s.feed.wrote(c) }

// Heard records that all pods are known.
func (s *Server) Heard() { s.feed.hear() }

// Run serves until ctx ends, then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	return s.listener.Serve(ctx, func(server grpc.ServiceRegistrar) {
		podsv1alpha1.RegisterPodsServer(server, &service{Server: s})
	})
}

// service implements the API.
type service struct {
	podsv1alpha1.UnimplementedPodsServer
	*Server
}

// errInitializing is the kubelet's error.
var errInitializing = status.Error(codes.FailedPrecondition, "Kubelet is initializing")

// ListPods returns all pods, by UID.
func (s *service) ListPods(context.Context, *podsv1alpha1.ListPodsRequest) (
	out *podsv1alpha1.ListPodsResponse, err error) {
	defer func() { s.requests.count(s.requests.list, err) }()
	all, heard := s.feed.list()
	if !heard {
		return nil, errInitializing
	}
	out = &podsv1alpha1.ListPodsResponse{}
	for _, pod := range all {
		raw, err := marshal(pod)
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, raw)
	}
	return out, nil
}

// GetPod returns the pod with a UID.
func (s *service) GetPod(_ context.Context, req *podsv1alpha1.GetPodRequest) (
	out *podsv1alpha1.GetPodResponse, err error) {
	defer func() { s.requests.count(s.requests.get, err) }()
	all, heard := s.feed.list()
	if !heard {
		return nil, errInitializing
	}
	for _, pod := range all {
		if pod.UID == types.UID(req.GetPodUID()) {
			raw, err := marshal(pod)
			return &podsv1alpha1.GetPodResponse{Pod: raw}, err
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %q not found", req.GetPodUID())
}

// WatchPods sends the present pods, a marker that these are all, and then the changes.
func (s *service) WatchPods(_ *podsv1alpha1.WatchPodsRequest,
	stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) (err error) {
	defer func() { s.requests.count(s.requests.watch, err) }()
	all, w, heard := s.feed.watch()
	if !heard {
		return errInitializing
	}
	defer s.feed.leave(w)
	for _, pod := range all {
		raw, err := marshal(pod)
		if err != nil {
			return err
		}
		if err := stream.Send(&podsv1alpha1.WatchPodsEvent{
			Type: podsv1alpha1.EventType_ADDED, Pod: raw,
		}); err != nil {
			return err
		}
	}
	if err := stream.Send(&podsv1alpha1.WatchPodsEvent{
		Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE,
	}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case e, ok := <-w.events:
			if !ok {
				return status.Errorf(codes.ResourceExhausted,
					"the watcher is more than %d events behind: watch again", maxBehind)
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		}
	}
}

func marshal(pod *v1.Pod) ([]byte, error) {
	raw, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "write pod %s: %v", pod.UID, err)
	}
	return raw, nil
}
