package sim

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

// Config is how the runtime begins; most of it can be changed while it runs.
type Config struct {
	// Listen is where CRI is served, "unix:///path". Control, a path, is where Client connects;
	// empty is nowhere.
	Listen  string
	Control string
	// CgroupDriver is "cgroupfs" (the default), "systemd", or "none" for a runtime that does not
	// implement RuntimeConfig.
	CgroupDriver string
	// Delays is how long the runtime takes per RPC name; "*" is every RPC that changes something
	// and has no entry of its own.
	Delays map[string]time.Duration
	// PullTimeout is when a pull that has not ended fails, as containerd's
	// image_pull_progress_timeout; zero is its five minutes.
	PullTimeout time.Duration
	// Images are there from the start. Missing are path.Match patterns of names that cannot be
	// pulled. ImageUsers maps an image name to the user it runs as; others run as root.
	Images     []string
	Missing    []string
	ImageUsers map[string]string
	// CDIDirs have the specs of CDI devices; empty: where containerd looks for them.
	CDIDirs []string
	// Handlers are the runtime handlers that there are besides the default.
	Handlers []string
}

// cdiDirs are where containerd looks for specs of CDI devices.
var cdiDirs = []string{"/etc/cdi", "/var/run/cdi"}

// Ready is the runtime's own condition.
type Ready struct {
	Runtime bool   `json:"runtime"`
	Network bool   `json:"network"`
	Message string `json:"message,omitempty"`
}

// Server is a simulated runtime. Its methods control it from the same process and are safe for
// concurrent use; other processes give the orders of routes.
type Server struct {
	cfg     Config
	cri     net.Listener
	control net.Listener // nil: none
	streams streams

	store   *store
	images  *images
	faults  *faults
	journal *journal

	mu        sync.Mutex
	condition Ready
}

// New opens the sockets, so that whoever connects before Run is served by it.
func New(cfg Config) (*Server, error) {
	if !slices.Contains([]string{"", "cgroupfs", "systemd", "none"}, cfg.CgroupDriver) {
		return nil, fmt.Errorf("cgroup driver %q: use cgroupfs, systemd or none", cfg.CgroupDriver)
	}
	for method := range cfg.Delays {
		if err := (Fault{Method: method}).validate(Methods()); err != nil {
			return nil, fmt.Errorf("delay: %w", err)
		}
	}
	if len(cfg.CDIDirs) == 0 {
		cfg.CDIDirs = cdiDirs
	}
	s := &Server{
		cfg:       cfg,
		store:     newStore(newEvents()),
		images:    newImages(cfg),
		faults:    newFaults(),
		journal:   newJournal(),
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

// listenUnix replaces a socket that nobody serves any more.
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

// Endpoint is the URL that an agent connects to.
func (s *Server) Endpoint() string { return "unix://" + s.cri.Addr().String() }

// Run serves until ctx ends, then forgets everything and removes the sockets.
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

// Methods are the names of all CRI v1 calls.
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

// SetReady sets the runtime's conditions. Without network, sandboxes outside the host's network
// cannot be made.
func (s *Server) SetReady(r Ready) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition = r
}

// SetFault adds a fault; it is in force when SetFault returns.
func (s *Server) SetFault(f Fault) error {
	if err := f.validate(Methods()); err != nil {
		return err
	}
	s.faults.add(f)
	return nil
}

// ClearFaults ends all faults; calls that hang go on.
func (s *Server) ClearFaults() { s.faults.clear() }

// SetEvents says what GetContainerEvents does from now on.
func (s *Server) SetEvents(mode EventMode) error {
	switch mode {
	case EventsOn, EventsSilent, EventsUnimplemented:
		s.store.events.setMode(mode)
		return nil
	default:
		return fmt.Errorf("event mode %q: use on, silent or unimplemented", mode)
	}
}

// DropEvents ends the open event streams; new ones are served.
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

// KillSandbox makes a sandbox not ready, given by id or as namespace/pod, with its containers
// killed: what is left when the pause process dies.
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

// Journal gives the calls that began after the given sequence number (0: all that are kept).
func (s *Server) Journal(since uint64) []Call { return s.journal.since(since) }
