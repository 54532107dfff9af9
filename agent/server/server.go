// Package server answers HTTP: the health of the agent on the healthz port and, where it is
// configured, pods and metrics on the read-only port. Both are plain HTTP without authentication
// and change nothing.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
)

// Config is what is served where. Handlers are called from many goroutines.
type Config struct {
	// Healthz and ReadOnly are addresses (host:port); "" serves nothing.
	Healthz, ReadOnly string
	// Checks are asked for /healthz beside ping and log, and at /healthz/<name>.
	Checks []healthz.HealthChecker
	// Pods are the pods for /pods.
	Pods func() []*v1.Pod
	// Metrics is gathered for /metrics; see NewRegistry.
	Metrics metrics.Gatherer
	// More are further handlers of the read-only port by pattern (http.ServeMux), for GET.
	More map[string]http.Handler
	// Questions are handlers of the read-only port by pattern, for POST: the question is too long
	// for a URL. They change nothing either.
	Questions map[string]http.Handler
}

// Time limits of a connection. A client has to send its request's header in time; the others are
// the kubelet's.
const (
	headerTimeout   = 30 * time.Second
	idleTimeout     = 90 * time.Second
	requestTimeout  = 4 * time.Hour
	shutdownTimeout = 5 * time.Second
)

// Server listens on the configured addresses.
type Server struct {
	log               *logCheck
	healthz, readOnly *endpoint
}

// endpoint is one listening address; nil is one that is off.
type endpoint struct {
	listener net.Listener
	handler  http.Handler
}

// New listens, so that an address in use is known at once; nobody is answered before Run.
func New(c Config) (*Server, error) {
	s := &Server{log: newLogCheck()}
	checks := append([]healthz.HealthChecker{
		healthz.PingHealthz,
		healthz.NamedCheck("log", s.log.check),
	}, c.Checks...)

	health := http.NewServeMux()
	healthz.InstallHandler(health, checks...)
	readOnly := http.NewServeMux()
	healthz.InstallHandler(readOnly, checks...)
	readOnly.Handle("/pods", podsHandler(c.Pods))
	if c.Metrics != nil {
		readOnly.Handle("/metrics", metrics.HandlerFor(c.Metrics, metrics.HandlerOpts{}))
	}
	for pattern, handler := range c.More {
		readOnly.Handle(pattern, handler)
	}
	all := http.NewServeMux()
	all.Handle("/", getOnly(readOnly))
	for pattern, handler := range c.Questions {
		all.Handle(pattern, only(handler, http.MethodPost))
	}

	var err error
	if s.healthz, err = listen(c.Healthz, getOnly(health)); err != nil {
		return nil, fmt.Errorf("%w: stop what uses it, or change healthzBindAddress or "+
			"healthzPort (--healthz-bind-address, --healthz-port)", err)
	}
	if s.readOnly, err = listen(c.ReadOnly, all); err != nil {
		s.healthz.close()
		return nil, fmt.Errorf("%w: stop what uses it, or change address or readOnlyPort "+
			"(--address, --read-only-port)", err)
	}
	return s, nil
}

func listen(address string, handler http.Handler) (*endpoint, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err // says "listen tcp ADDRESS: why"
	}
	return &endpoint{listener: l, handler: handler}, nil
}

// HealthzAddr is the address of the healthz port, nil when it is off.
func (s *Server) HealthzAddr() net.Addr { return s.healthz.addr() }

// ReadOnlyAddr is the address of the read-only port, nil when it is off.
func (s *Server) ReadOnlyAddr() net.Addr { return s.readOnly.addr() }

// Run answers until ctx ends, then lets requests under way finish for a moment. It ends early, and
// with an error, when a listener breaks.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.log.run(ctx) })
	for _, e := range []*endpoint{s.healthz, s.readOnly} {
		if e != nil {
			g.Go(func() error { return e.run(ctx) })
		}
	}
	return g.Wait()
}

func (e *endpoint) addr() net.Addr {
	if e == nil {
		return nil
	}
	return e.listener.Addr()
}

func (e *endpoint) close() {
	if e != nil {
		e.listener.Close()
	}
}

func (e *endpoint) run(ctx context.Context) error {
	server := &http.Server{
		Handler:           e.handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", e.listener.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(limit) != nil {
			server.Close() // a request that does not end is cut off
		}
		return nil
	})
	return g.Wait()
}
