// Package watchertest has the sockets of a plugin that the plugin registry finds, for drivers in tests.
package watchertest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config says where a plugin has its sockets and what it serves there.
type Config struct {
	// The plugin registers with Type, Name and Versions.
	Type, Name string
	Versions   []string
	// Instance tells the sockets of several instances of a plugin apart.
	Instance string
	// Dir has the plugin's own socket, whose name ends with Suffix; "": it has none.
	Dir, Suffix string
	// Registry is the plugin registry where the plugin has a socket; "": it has none.
	Registry string
	// Services returns a server with the plugin's own services, which does not run.
	Services func() *grpc.Server
}

// Sockets serves a plugin's own socket and the one by which it registers itself.
type Sockets struct {
	// Endpoint is the path of the plugin's own socket, Socket that in the plugin registry.
	Endpoint, Socket string

	cfg      Config
	mu       sync.Mutex // guards the fields below
	servers  []*grpc.Server
	notified []*registerapi.RegistrationStatus
	made     int // connections to Endpoint
}

// counted counts the connections that a listener accepts.
type counted struct {
	net.Listener
	accepted func()
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted()
	}
	return conn, err
}

// Connections returns how many connections were made to the plugin's own socket so far.
func (s *Sockets) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

func (s *Sockets) accepted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
}

// New returns sockets that are not served yet.
func New(cfg Config) *Sockets {
	s := &Sockets{cfg: cfg}
	if cfg.Dir != "" {
		s.Endpoint = filepath.Join(cfg.Dir, cfg.Name+cfg.Instance+cfg.Suffix)
	}
	if cfg.Registry != "" {
		s.Socket = filepath.Join(cfg.Registry, cfg.Name+cfg.Instance+"-reg.sock")
	}
	return s
}

// Revive serves the sockets, after Stop or Kill too.
func (s *Sockets) Revive(t testing.TB) {
	t.Helper()
	for _, path := range []string{s.Endpoint, s.Socket} {
		if path == "" {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if path == s.Endpoint {
			s.Serve(counted{l, s.accepted})
		} else {
			s.Serve(l)
		}
	}
}

// Serve serves everything on a listener, until Stop or Kill.
func (s *Sockets) Serve(l net.Listener) {
	server := s.cfg.Services()
	registerapi.RegisterRegistrationServer(server, registration{sockets: s})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = append(s.servers, server)
	go func() { _ = server.Serve(l) }() // Kill and Stop end it
}

// Remove removes the sockets. Connections stay.
func (s *Sockets) Remove() {
	for _, path := range []string{s.Socket, s.Endpoint} {
		_ = os.Remove(path) // it may have gone before
	}
}

// Stop lets calls end for the grace, and ends.
func (s *Sockets) Stop(grace time.Duration) {
	for _, server := range s.take() {
		stop := time.AfterFunc(grace, server.Stop)
		server.GracefulStop()
		stop.Stop()
	}
}

// Kill ends as a killed process does: connections break, sockets stay.
func (s *Sockets) Kill() {
	for _, server := range s.take() {
		server.Stop()
	}
}

func (s *Sockets) take() []*grpc.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.servers
	s.servers = nil
	return out
}

// Notified returns the notices that the plugin got of its registrations.
func (s *Sockets) Notified() []*registerapi.RegistrationStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notified)
}

// registration is the service by which the registry asks a plugin who it is.
type registration struct {
	registerapi.UnimplementedRegistrationServer
	sockets *Sockets
}

func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	cfg := r.sockets.cfg
	return &registerapi.PluginInfo{
		Type: cfg.Type, Name: cfg.Name, Endpoint: r.sockets.Endpoint, SupportedVersions: cfg.Versions,
	}, nil
}

func (r registration) NotifyRegistrationStatus(_ context.Context, notice *registerapi.RegistrationStatus) (
	*registerapi.RegistrationStatusResponse, error) {
	r.sockets.mu.Lock()
	defer r.sockets.mu.Unlock()
	r.sockets.notified = append(r.sockets.notified, notice)
	return &registerapi.RegistrationStatusResponse{}, nil
}
