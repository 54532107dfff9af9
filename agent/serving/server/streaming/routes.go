package streaming

import (
	"context"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/internal/route"
)

// Config says where streams lead.
type Config struct {
	Runtime Runtime
	// Pod finds a pod by namespace and name, and by its UID unless that is "".
	Pod func(namespace, name string, uid types.UID) (*v1.Pod, bool)
	// Observed returns the pod as the runtime has it.
	Observed func(types.UID) (cri.Pod, bool)
	// Old leaves the newest WebSocket protocols to the runtime, which may not support them.
	Old bool
	// Idle bounds how long a stream may be idle; 0: no bound.
	Idle time.Duration
	// Registry takes the metrics; nil: nothing is counted.
	Registry metrics.KubeRegistry
}

// Runtime opens streams and runs commands in containers.
type Runtime interface {
	Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(context.Context, *runtimeapi.PortForwardRequest) (
		*runtimeapi.PortForwardResponse, error)
	ExecSync(ctx context.Context, container string, command []string, timeout time.Duration) (
		stdout, stderr []byte, err error)
}

// streams serves the routes.
type streams struct {
	Config
	metric.Set
	websockets *metrics.CounterVec
}

// Routes returns the routes of exec, attach, port-forward and run.
func Routes(c Config) ([]route.Route, error) {
	s := &streams{Config: c}
	s.websockets = s.Counters("kubelet_websocket_streaming_requests_total",
		"Streams that were asked for over WebSocket.", "subresource")
	if err := s.Register(c.Registry); err != nil {
		return nil, err
	}
	var out []route.Route
	for _, in := range []struct {
		path    string
		handler http.HandlerFunc
	}{
		{"/exec/{namespace}/{pod}/{container}", s.exec},
		{"/exec/{namespace}/{pod}/{uid}/{container}", s.exec},
		{"/attach/{namespace}/{pod}/{container}", s.attach},
		{"/attach/{namespace}/{pod}/{uid}/{container}", s.attach},
		{"/portForward/{namespace}/{pod}", s.portForward},
		{"/portForward/{namespace}/{pod}/{uid}", s.portForward},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			out = append(out, route.Route{Method: method, Pattern: in.path, Handler: in.handler,
				Stream: true})
		}
	}
	for _, path := range []string{
		"/run/{namespace}/{pod}/{container}", "/run/{namespace}/{pod}/{uid}/{container}",
	} {
		out = append(out, route.Route{
			Method: http.MethodPost, Pattern: path, Handler: http.HandlerFunc(s.run),
			Stream: true,
		})
	}
	return out, nil
}

// observed returns the request's pod, and the pod as the runtime has it.
func (s *streams) observed(r *http.Request) (*v1.Pod, cri.Pod, error) {
	pod, ok := s.Pod(r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if !ok {
		return nil, cri.Pod{}, route.Refuse(http.StatusNotFound, "pod does not exist")
	}
	found, _ := s.Observed(pod.UID)
	return pod, found, nil
}

// container returns the id of the request's container, the newest of that name.
func (s *streams) container(r *http.Request) (string, error) {
	_, pod, err := s.observed(r)
	if err != nil {
		return "", err
	}
	name := r.PathValue("container")
	c, ok := pod.Container(name)
	if !ok {
		return "", route.Refuse(http.StatusInternalServerError, "container not found (%q)", name)
	}
	return c.ID, nil
}

// sandbox returns the id of the ready sandbox of the request's pod.
func (s *streams) sandbox(r *http.Request) (string, error) {
	named, pod, err := s.observed(r)
	if err != nil {
		return "", err
	}
	for _, sb := range pod.Sandboxes {
		if sb.Ready {
			return sb.ID, nil
		}
	}
	return "", route.Refuse(http.StatusInternalServerError, "no sandbox of pod %s/%s runs",
		named.Namespace, named.Name)
}
