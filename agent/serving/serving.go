// Package serving answers requests to the node: over HTTP, on the sockets of monitoring agents, and with
// statistics.
package serving

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/serving/event"
	"github.com/numalet/numalet/agent/serving/podresources"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// Config has the floors that are asked about. All fields are required but Kube.
type Config struct {
	*node.Host
	Placement *placement.Placement
	Resources placement.Resources
	Storage   *storage.Storage
	Pods      *pods.Pods
	PLEG      *lifecycle.PLEG
	Probes    pods.Prober
	Evictions *node.Evictions
	Stats     *stats.Collector
	Recorder  *event.Recorder
	Trace     trace.TracerProvider
	Kube      *kubeapi.Client // nil: the node is in no cluster
}

// Serving is the floor.
type Serving struct {
	c Config
	// open change nothing, and are on every port. guarded need rights of their own: they are on the port of
	// the node and on the socket, which is the administrator's.
	open, guarded []route.Route
	// inside reaches into containers: logs, exec and the like; nil if debugging handlers are off. It is where
	// guarded is.
	inside    []route.Route
	resources *podresources.Server
	listeners *server.Server
	follow    []part.Part
}

// New listens for requests to the node.
func New(ctx context.Context, c Config) (*Serving, error) {
	s := &Serving{c: c}
	var err error
	if s.resources, err = podresources.New(s.podResources()); err != nil {
		return nil, err
	}
	s.guarded = append(devices.Routes(c.Placement.Routes()), claims.Routes(c.Placement.Claims.Manager)...)
	s.open = slices.Concat(s.routes(), c.Stats.Routes(), s.resources.Routes(), []route.Route{
		server.MetricsRoute(c.Registry), server.SLIRoute(),
	})
	if s.inside, err = s.insideRoutes(); err != nil {
		return nil, err
	}
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
	c := server.Config{Registry: s.c.Registry, Checks: s.checks(), Trace: s.c.Trace}
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
			Routes:   append(slices.Clone(s.open), index(s.open)), Type: server.ReadOnly,
		})
	}
	all := slices.Concat(s.open, s.guarded, s.inside)
	c.Listeners = append(c.Listeners, server.Listener{
		Address:  filepath.Join(s.c.Settings.RootDir, devices.Socket),
		Settings: "--root-dir", Routes: append(all, index(all)),
	})
	return c
}
