// Package server answers HTTP on a list of listeners, each with its own address, routes and
// optionally certificates and authorization. Other packages provide the answers, as routes. Every
// listener serves the agent's health.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/bounded"
	"github.com/numalet/numalet/internal/route"
)

// Config lists the listeners. Handlers are called from many goroutines.
type Config struct {
	Listeners []Listener
	// Checks contribute to /healthz, beside ping and log, and are served at /healthz/<name>.
	Checks []healthz.HealthChecker
	// Registry takes the metrics of the requests; nil: nothing is counted.
	Registry metrics.KubeRegistry
	// Trace takes a span of each request that is allowed, by its route's pattern; nil: there are none.
	Trace trace.TracerProvider
}

// Listener is one address with its routes and authorization.
type Listener struct {
	// Address is host:port, or the path of a unix socket that only the agent's user may use. An
	// existing socket is replaced.
	Address string
	// TLS holds the certificates; nil: plain HTTP.
	TLS *tls.Config
	// Authorize wraps everything that is served, including /healthz, and answers requests that are not
	// allowed; nil: all are.
	Authorize func(http.Handler) http.Handler
	Routes    []route.Route
	// Settings names the settings to change if the address cannot be used.
	Settings string
	// Type is the label of counted requests, ReadOnly or ReadWrite; "": they are not counted.
	Type string
}

// Time limits of a connection. A client must send its request and read the answer in time: an
// answer that is not read stays in memory. A handler that streams removes the limit on writing
// itself (http.ResponseController).
const (
	headerTimeout   = 30 * time.Second
	idleTimeout     = 90 * time.Second
	requestTimeout  = time.Minute
	shutdownTimeout = 5 * time.Second
)

// Server serves the configured listeners.
type Server struct {
	log       *logCheck
	endpoints []*endpoint
}

// endpoint is an open listener and its HTTP server.
type endpoint struct {
	listener net.Listener
	server   *http.Server
}

// New opens the listeners, so that an address in use fails here; requests are answered in Run.
func New(c Config) (*Server, error) {
	s := &Server{log: newLogCheck()}
	health := healthRoutes(append([]healthz.HealthChecker{
		healthz.PingHealthz,
		healthz.NamedCheck("log", s.log.check),
	}, c.Checks...))
	under := newUnderWay(maxUnderWay)
	m := newMeasures()
	if err := m.Register(c.Registry); err != nil {
		return nil, err
	}
	for _, l := range c.Listeners {
		e, err := open(l, health, under, m, c.Trace)
		if err != nil {
			s.close()
			return nil, err
		}
		s.endpoints = append(s.endpoints, e)
	}
	return s, nil
}

func open(l Listener, health []route.Route, under *underWay, m *measures, spans trace.TracerProvider) (
	*endpoint, error) {
	routes := slices.Concat(health, l.Routes)
	handler, err := join(routes, under, spans)
	if err != nil {
		return nil, err
	}
	if l.Authorize != nil {
		handler = l.Authorize(handler)
	}
	handler = patient(handler)
	if l.Type != "" {
		handler = m.count(l.Type, routes, handler)
	}
	listener, err := listen(l.Address)
	if err != nil { // contains "listen tcp ADDRESS: why"
		return nil, fmt.Errorf("%w: stop what uses it, or change %s", err, l.Settings)
	}
	listener = bounded.Paced(listener, bounded.Connections())
	if l.TLS != nil {
		// http.Server refuses a TLSConfig without TLS_ECDHE_..._AES_128_GCM_SHA256, which HTTP/2 requires
		// and hardened nodes may not allow. So the listener does TLS.
		listener = tls.NewListener(listener, l.TLS)
	}
	return &endpoint{listener: listener, server: newHTTPServer(handler)}, nil
}

func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		ConnContext:       withClient,
		ErrorLog:          newErrorLog(),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
}

func (s *Server) close() {
	for _, e := range s.endpoints {
		e.listener.Close()
	}
}

// Run answers until ctx ends, then gives running requests a few seconds to finish. It returns early
// with an error if a listener fails.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.log.run(ctx) })
	for _, e := range s.endpoints {
		g.Go(func() error { return e.run(ctx) })
	}
	return g.Wait()
}

func (e *endpoint) run(ctx context.Context) error {
	e.server.BaseContext = func(net.Listener) context.Context { return ctx }
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", e.listener.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if e.server.Shutdown(limit) != nil {
			e.server.Close() // cuts off requests that do not end
		}
		return nil
	})
	return g.Wait()
}
