package crisim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config holds the initial settings; most can be changed while the runtime runs.
type Config struct {
	// Listen is the address of the CRI socket, "unix:///path". Control is the path of the control
	// socket; if empty, there is none.
	Listen  string
	Control string
	// CgroupDriver is "cgroupfs" (the default), "systemd", or "none" for a runtime that does not
	// implement RuntimeConfig.
	CgroupDriver string
	// Delays maps RPC names to the time that they take; "*" stands for all RPCs that change something
	// and have no entry.
	Delays map[string]time.Duration
	// PullTimeout bounds a pull, as containerd's image_pull_progress_timeout does; zero means five
	// minutes, containerd's default.
	PullTimeout time.Duration
	// Images are present from the start. Missing holds path.Match patterns of images that cannot be
	// pulled. ImageUsers maps image names to their users; other images run as root.
	Images     []string
	Missing    []string
	ImageUsers map[string]string
	// CDIDirs are the directories of CDI specs; empty: containerd's.
	CDIDirs []string
	// Handlers names the runtime handlers beside the default.
	Handlers []string
}

// cdiDirs are containerd's directories of CDI specs.
var cdiDirs = []string{"/etc/cdi", "/var/run/cdi"}

// Ready holds the runtime's conditions.
type Ready struct {
	Runtime bool   `json:"runtime"`
	Network bool   `json:"network"`
	Message string `json:"message,omitempty"`
}

// Server is a simulated runtime. Its methods control it from the same process and are safe for
// concurrent use; other processes use the control API (see routes).
type Server struct {
	calls
	cri     net.Listener
	control net.Listener // nil: none
	streams streams
	images  *images

	mu        sync.Mutex
	condition Ready
	podCIDR   string
}

// New opens the sockets, so that clients may connect before Run.
func New(cfg Config) (*Server, error) {
	if !slices.Contains([]string{"", "cgroupfs", "systemd", "none"}, cfg.CgroupDriver) {
		return nil, fmt.Errorf("cgroup driver %q: use cgroupfs, systemd or none", cfg.CgroupDriver)
	}
	for method := range cfg.Delays {
		if err := (Fault{Method: method}).validate(); err != nil {
			return nil, fmt.Errorf("delay: %w", err)
		}
	}
	if len(cfg.CDIDirs) == 0 {
		cfg.CDIDirs = cdiDirs
	}
	s := &Server{
		calls: calls{
			cfg: cfg, store: newStore(newEvents()), faults: newFaults(), journal: newJournal(),
		},
		images:    newImages(cfg),
		condition: Ready{Runtime: true, Network: true},
	}
	var err error
	if s.cri, err = listenUnix(strings.TrimPrefix(cfg.Listen, "unix://")); err != nil {
		return nil, err
	}
	if s.streams, err = newStreams(s.store); err != nil {
		return nil, errors.Join(err, s.cri.Close())
	}
	if cfg.Control != "" {
		if s.control, err = listenUnix(cfg.Control); err != nil {
			return nil, errors.Join(err, s.cri.Close(), s.streams.listener.Close())
		}
	}
	return s, nil
}

// listenUnix replaces a socket that no process serves.
func listenUnix(path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("listen: no socket path; use unix:///path")
	}
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if conn, dialErr := net.Dial("unix", path); dialErr == nil {
		return nil, errors.Join(fmt.Errorf("listen %s: another process serves it: %w", path, err),
			conn.Close())
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("listen %s: remove stale socket: %w", path, err)
	}
	return net.Listen("unix", path)
}

// Endpoint returns the URL of the CRI socket.
func (s *Server) Endpoint() string { return "unix://" + s.cri.Addr().String() }

// Run serves until ctx ends, then drops its state and removes the sockets.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	rpc := grpc.NewServer(grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true))
	runtimeapi.RegisterRuntimeServiceServer(rpc, &runtimeService{Server: s})
	runtimeapi.RegisterImageServiceServer(rpc, &imageService{Server: s})
	g.Go(func() error {
		if err := rpc.Serve(s.cri); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve CRI on %s: %w", s.Endpoint(), err)
		}
		return nil
	})
	streams := s.streams.http()
	g.Go(func() error {
		if err := streams.Serve(s.streams.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve streams: %w", err)
		}
		return nil
	})
	control := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	if s.control != nil {
		g.Go(func() error {
			if err := control.Serve(s.control); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve control on %s: %w", s.cfg.Control, err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		s.store.close()
		rpc.Stop()
		return errors.Join(streams.Close(), control.Close())
	})
	return g.Wait()
}

// Methods returns the names of all CRI v1 calls.
func Methods() []string {
	var out []string
	for _, desc := range []grpc.ServiceDesc{
		runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc,
	} {
		for _, m := range desc.Methods {
			out = append(out, m.MethodName)
		}
		for _, m := range desc.Streams {
			out = append(out, m.StreamName)
		}
	}
	slices.Sort(out)
	return out
}

func (s *Server) ready() Ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.condition
}

// SetReady sets the runtime's conditions. Without network only sandboxes in the host's network can
// be created.
func (s *Server) SetReady(r Ready) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition = r
}

// SetFault adds a fault, which is in force when SetFault returns.
func (s *Server) SetFault(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	s.faults.add(f)
	return nil
}

// ClearFaults ends all faults; hanging calls continue.
func (s *Server) ClearFaults() { s.faults.clear() }

// SetEvents selects what GetContainerEvents does from now on.
func (s *Server) SetEvents(mode EventMode) error {
	switch mode {
	case EventsOn, EventsSilent, EventsUnimplemented:
		s.store.events.setMode(mode)
		return nil
	default:
		return fmt.Errorf("event mode %q: use on, silent or unimplemented", mode)
	}
}

// DropEvents ends the open event streams; new streams are accepted.
func (s *Server) DropEvents() { s.store.events.drop() }

// SetMissing replaces the patterns of images that cannot be pulled. It does not remove images.
func (s *Server) SetMissing(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("missing image %q: %w", p, err)
		}
	}
	s.images.setMissing(patterns)
	return nil
}

// Exit ends a running container, given by id or as pod/container, as if its process had ended.
func (s *Server) Exit(container string, how Exit) error {
	c, err := s.runningContainer(container)
	if err != nil {
		return err
	}
	s.end(c, how)
	return nil
}

// KillSandbox makes a sandbox, given by id or as namespace/pod, not ready and kills its containers,
// as the death of its pause process does.
func (s *Server) KillSandbox(sandbox string) error {
	for _, sb := range s.State().Sandboxes {
		if sb.Ready && (sb.ID == sandbox || sb.Namespace+"/"+sb.Pod == sandbox) {
			(&runtimeService{Server: s}).stopSandbox(sb.ID)
			return nil
		}
	}
	return fmt.Errorf("sandbox %q: no ready sandbox of that id or namespace/pod", sandbox)
}

func (s *Server) runningContainer(ref string) (*container, error) {
	for _, c := range s.store.in("") {
		state, running := s.store.stateOf(c)
		name := c.sandbox.config.GetMetadata().GetName() + "/" + c.config.GetMetadata().GetName()
		switch {
		case c.id == ref && !running:
			return nil, fmt.Errorf("container %q: it is not running but %s", ref, state)
		case running && (c.id == ref || name == ref):
			return c, nil
		}
	}
	return nil, fmt.Errorf("container %q: no running container of that id or pod/container", ref)
}

// Journal returns the calls that began after that sequence number (0: all that are kept).
func (s *Server) Journal(since uint64) []Call { return s.journal.since(since) }
