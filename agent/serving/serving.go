// Package serving answers those who ask the node: over HTTP, on the sockets of monitoring agents, and with
// statistics.
package serving

import (
	"context"
	"net"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/serving/podresources"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// Config has what the floor serves. All fields are required but Kube.
type Config struct {
	Settings *config.Config
	Node     string // its name
	Registry kubemetrics.KubeRegistry
	Trace    trace.TracerProvider
	Kube     *kubeapi.Client // nil: the node is in no cluster
	// Addresses are the node's, for its certificate. SetAside tells of a file that could not be used and
	// was moved aside, and of what then happens; it returns other errors.
	Addresses *addresses.Addresses
	SetAside  func(ctx context.Context, err error, reason, then string) error
	Client    *cri.Client
	Observed  func(types.UID) (cri.Pod, bool) // the pod as the runtime has it
	Running   func() []cri.Pod
	Pods      Pods

	// Open change nothing, and are on every port. Guarded need rights of their own: they are on the port
	// of the node and on Socket, which is the administrator's.
	Open, Guarded []route.Route
	Socket        string
	Checks        []healthz.HealthChecker
	Stats         *stats.Collector
	PodResources  podresources.Config
}

// Pods are the pods of the node with their statuses.
type Pods interface {
	// Named finds a pod by namespace and name, and by its UID unless that is "".
	Named(namespace, name string, uid types.UID) (*v1.Pod, bool)
	// Allocated returns the pods with the resources that they were admitted with.
	Allocated() []*v1.Pod
}

// Serving is the floor.
type Serving struct {
	c         Config
	open      []route.Route
	resources *podresources.Server
	listeners *server.Server
	follow    []part.Part
}

// New listens for those who ask the node.
func New(ctx context.Context, c Config) (*Serving, error) {
	s := &Serving{c: c}
	var err error
	if s.resources, err = podresources.New(c.PodResources); err != nil {
		return nil, err
	}
	s.open = slices.Concat(c.Open, c.Stats.Routes(), s.resources.Routes(), []route.Route{
		server.MetricsRoute(c.Registry), server.SLIRoute(),
	})
	all := s.plain()
	api, err := s.nodeAPI(ctx)
	if err != nil {
		return nil, err
	}
	all.Listeners = append(all.Listeners, api...)
	s.listeners, err = server.New(all)
	return s, err
}

// Parts lists the goroutines, which run from the start.
func (s *Serving) Parts() []part.Part {
	return append(s.follow, part.Of("pod resources", s.resources.Run), part.Of("statistics", s.c.Stats.Run),
		part.Of("http server", s.listeners.Run))
}

// plain are the listeners of plain HTTP without authorization: the healthz port, which only has the
// health checks of every listener; the read-only port, where nothing changes anything; and the socket of
// the node's administrator.
func (s *Serving) plain() server.Config {
	k := &s.c.Settings.Kubelet
	c := server.Config{Registry: s.c.Registry, Checks: s.c.Checks, Trace: s.c.Trace}
	if *k.HealthzPort > 0 {
		c.Listeners = append(c.Listeners, server.Listener{
			Address: net.JoinHostPort(k.HealthzBindAddress, strconv.Itoa(int(*k.HealthzPort))),
			Settings: "healthzBindAddress or healthzPort (--healthz-bind-address, " +
				"--healthz-port)",
		})
	}
	if k.ReadOnlyPort > 0 {
		c.Listeners = append(c.Listeners, server.Listener{
			Address:  net.JoinHostPort(k.Address, strconv.Itoa(int(k.ReadOnlyPort))),
			Settings: "address or readOnlyPort (--address, --read-only-port)",
			Routes:   s.open, Type: server.ReadOnly,
		})
	}
	c.Listeners = append(c.Listeners, server.Listener{
		Address: s.c.Socket, Settings: "--root-dir", Routes: slices.Concat(s.open, s.c.Guarded),
	})
	return c
}
