// Package server answers HTTP on a list of listeners, each with its own address, routes, and, where
// it has them, certificates and authorization. What is answered comes from the packages that know
// it, as routes; the health of the agent is served on every listener.
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

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/topology/bounded"
)

// Config is what is served where. Handlers are called from many goroutines.
type Config struct {
	Listeners []Listener
	// Checks are asked for /healthz beside ping and log, and at /healthz/<name>.
	Checks []healthz.HealthChecker
	// Registry takes the metrics of the requests; nil: nothing is counted.
	Registry metrics.KubeRegistry
}

// Listener is one address and who is answered what there.
type Listener struct {
	// Address is host:port, or the path of a unix socket that nobody but the agent's user may use;
	// one that is there is replaced.
	Address string
	// TLS has the certificates; nil: plain HTTP.
	TLS *tls.Config
	// Authorize wraps all that is served, /healthz too, and answers those who may not ask; nil:
	// everybody may.
	Authorize func(http.Handler) http.Handler
	Routes    []Route
	// Settings names what to change when the address cannot be had.
	Settings string
	// Type is ReadOnly or ReadWrite where requests are counted; "": they are not.
	Type string
}

// Time limits of a connection. A client has to send its request in time, and to take the answer:
// one that does not read holds it in memory. A handler whose answer is a stream lifts the limit of
// writing for itself (http.ResponseController).
const (
	headerTimeout   = 30 * time.Second
	idleTimeout     = 90 * time.Second
	requestTimeout  = time.Minute
	shutdownTimeout = 5 * time.Second
)

// Server listens on the configured addresses.
type Server struct {
	log       *logCheck
	endpoints []*endpoint
}

// endpoint is an open listener with the server of its requests.
type endpoint struct {
	listener net.Listener
	server   *http.Server
}

// New listens, so that an address in use is known at once; nobody is answered before Run.
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
		e, err := open(l, health, under, m)
		if err != nil {
			s.close()
			return nil, err
		}
		s.endpoints = append(s.endpoints, e)
	}
	return s, nil
}

func open(l Listener, health []Route, under *underWay, m *measures) (*endpoint, error) {
	routes := slices.Concat(health, l.Routes)
	handler, err := join(routes, under)
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
	if err != nil { // says "listen tcp ADDRESS: why"
		return nil, fmt.Errorf("%w: stop what uses it, or change %s", err, l.Settings)
	}
	listener = bounded.Paced(listener, bounded.Connections())
	if l.TLS != nil {
		// As the server's TLSConfig it would be refused unless TLS_ECDHE_..._AES_128_GCM_SHA256 is
		// among the ciphers, which HTTP/2 demands and hardened nodes may not allow.
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
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
}

func (s *Server) close() {
	for _, e := range s.endpoints {
		e.listener.Close()
	}
}

// Run answers until ctx ends, then lets requests under way finish for a moment. It ends early, and
// with an error, when a listener breaks.
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
			e.server.Close() // a request that does not end is cut off
		}
		return nil
	})
	return g.Wait()
}
