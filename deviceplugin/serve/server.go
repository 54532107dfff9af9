package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/topology/files"
)

const (
	kubeletSocket    = "kubelet.sock"
	registerDeadline = 10 * time.Second
	registerAgain    = 3 * time.Second
	answerDeadline   = 2 * time.Second
)

// Server has a device plugin answer on a socket of its own, and registers it.
type Server struct {
	// Resource is the extended resource, example.com/eni.
	Resource string
	// Dir is the device manager's directory, where kubelet.sock is or will be. Socket is the name of
	// the plugin's own socket in it; "": SocketName of the resource.
	Dir, Socket string
	Options     *v1beta1.DevicePluginOptions
	// Answers are the plugin's. A stream's context is done when its session ends.
	Answers v1beta1.DevicePluginServer
	// Lifecycle is what it serves beside that.
	Lifecycle Lifecycle
	// Log gets a line for people on what happens.
	Log func(format string, args ...any)
}

// Run serves until ctx is done, and leaves no socket behind. It registers whenever kubelet.sock is
// made. The error is one of the directory or of the socket in it.
func (s Server) Run(ctx context.Context) error {
	if s.Socket == "" {
		s.Socket = SocketName(s.Resource)
	}
	// Watching begins before the first registration, so that no new socket is missed.
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch device plugin directory: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(s.Dir); err != nil {
		return fmt.Errorf("watch device plugin directory %s: %w", s.Dir, err)
	}
	for ctx.Err() == nil {
		if err := s.session(ctx, watcher); err != nil {
			return fmt.Errorf("device plugin %s: %w", s.Resource, err)
		}
	}
	return nil
}

// session serves on a new socket and registers it, until ctx is done or another session is due.
func (s Server) session(ctx context.Context, watcher *fsnotify.Watcher) error {
	path := filepath.Join(s.Dir, s.Socket)
	if err := files.Remove(path); err != nil { // an earlier process may have left it
		return err
	}
	listener, err := listen(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.StreamInterceptor(within(ctx)))
	v1beta1.RegisterDevicePluginServer(server, s.Answers)
	s.Lifecycle.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = s.await(ctx, watcher, listener, served)
	cancel()
	stop(server)
	return err
}

// listen tries again when a device manager that starts removes all sockets, and with them the one
// that is being made. It does so once.
func listen(path string) (l *socket.Listener, err error) {
	for range 3 {
		if l, err = socket.Listen(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return l, err
}

// within has streams see that their session is over.
func within(session context.Context) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		defer context.AfterFunc(session, cancel)()
		return handle(srv, stream{s, ctx})
	}
}

// stream is one with another context.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// stop ends a server, and its socket with it. Calls that are under way get their answers unless
// that takes long.
func stop(server *grpc.Server) {
	defer time.AfterFunc(answerDeadline, server.Stop).Stop()
	server.GracefulStop()
}

// await registers, and returns when the session is over; the error is one of serving.
func (s Server) await(
	ctx context.Context, watcher *fsnotify.Watcher, listener *socket.Listener, served <-chan error,
) error {
	due, said := time.After(0), ""
	for {
		select {
		case <-due:
			due = s.register(ctx, &said)
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletSocket {
				return nil
			}
			if listener.Gone() { // a device manager that starts removes all sockets
				return nil
			}
		case err := <-watcher.Errors:
			s.Log("%s: watching %s: %v", s.Resource, s.Dir, err)
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// register tells the device manager of the plugin. When that failed it returns when to try again,
// and said has what was logged, which is not repeated.
func (s Server) register(ctx context.Context, said *string) (again <-chan time.Time) {
	err := s.registerOnce(ctx)
	text := fmt.Sprintf("%s: registering: %v; trying again every %s", s.Resource, err,
		registerAgain)
	switch {
	case err == nil:
		s.Log("%s: registered, serving on %s", s.Resource, s.Socket)
		return nil
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		text = fmt.Sprintf("%s: waiting for %s to appear in %s", s.Resource, kubeletSocket, s.Dir)
	}
	if text != *said {
		*said = text
		s.Log("%s", text)
	}
	return time.After(registerAgain)
}

func (s Server) registerOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	return Register(ctx, s.Dir, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: s.Socket, ResourceName: s.Resource, Options: s.Options,
	})
}

// Register calls Register of the device manager of a directory, once. The error is fs.ErrNotExist
// while it has no socket there.
func Register(ctx context.Context, dir string, request *v1beta1.RegisterRequest) error {
	path := filepath.Join(dir, kubeletSocket)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, request)
	return err
}

// SocketName is the name of a resource's socket in the device manager's directory.
func SocketName(resource string) string {
	return strings.ReplaceAll(resource, "/", "_") + ".sock"
}
