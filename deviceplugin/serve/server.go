package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/files"
)

const (
	kubeletSocket    = "kubelet.sock"
	registerDeadline = 10 * time.Second
	registerAgain    = 3 * time.Second
	answerDeadline   = 2 * time.Second
)

// Run serves the plugin until ctx is done, and leaves no socket behind. It registers whenever
// kubelet.sock is made. It fails only because of the directory or the plugin's socket.
func (p *Plugin) Run(ctx context.Context) error {
	// Watch before the first registration, so that no new socket is missed.
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch device plugin directory: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(p.cfg.Dir); err != nil {
		return fmt.Errorf("watch device plugin directory %s: %w", p.cfg.Dir, err)
	}
	for ctx.Err() == nil {
		if err := p.session(ctx, watcher); err != nil {
			return fmt.Errorf("device plugin %s: %w", p.cfg.Resource, err)
		}
	}
	return nil
}

// session serves on a new socket and registers it, until ctx is done or another session is due.
func (p *Plugin) session(ctx context.Context, watcher *fsnotify.Watcher) error {
	listener, err := Listen(filepath.Join(p.cfg.Dir, p.cfg.Socket))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.StreamInterceptor(within(ctx)))
	v1beta1.RegisterDevicePluginServer(server, &answers{plugin: p})
	Lifecycle{p.cfg.Released, p.cfg.Reasons, p.cfg.Places}.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = p.await(ctx, watcher, listener, served)
	cancel()
	stop(server)
	return err
}

// Listen makes a plugin's socket in place of a leftover of an earlier process. It tries again if a
// device manager that starts removes the new socket with all others, which happens once.
func Listen(path string) (l *socket.Listener, err error) {
	if err := files.Remove(path); err != nil {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	for range 3 {
		if l, err = socket.Listen(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return l, err
}

// within cancels streams at the end of their session.
func within(session context.Context) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		defer context.AfterFunc(session, cancel)()
		return handle(srv, stream{s, ctx})
	}
}

// stream has its own context.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// stop ends a server and removes its socket. Calls in flight get their answers, for at most
// answerDeadline.
func stop(server *grpc.Server) {
	defer time.AfterFunc(answerDeadline, server.Stop).Stop()
	server.GracefulStop()
}

// await registers, and returns when the session is over; the error is that of serving.
func (p *Plugin) await(
	ctx context.Context, watcher *fsnotify.Watcher, listener *socket.Listener, served <-chan error,
) error {
	due, said := time.After(0), ""
	for {
		select {
		case <-due:
			due = p.register(ctx, &said)
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletSocket {
				return nil
			}
			if listener.Gone() { // a device manager that starts removes all sockets
				return nil
			}
		case err := <-watcher.Errors:
			p.cfg.Log("%s: watching %s: %v", p.cfg.Resource, p.cfg.Dir, err)
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// register registers with the device manager. After a failure it returns the time of the next try;
// said holds the last logged text, which is not repeated.
func (p *Plugin) register(ctx context.Context, said *string) (again <-chan time.Time) {
	err := p.registerOnce(ctx)
	text := fmt.Sprintf("%s: registering: %v; trying again every %s", p.cfg.Resource, err,
		registerAgain)
	switch {
	case err == nil:
		p.cfg.Log("%s: registered, serving on %s", p.cfg.Resource, p.cfg.Socket)
		return nil
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		text = fmt.Sprintf("%s: waiting for %s to appear in %s", p.cfg.Resource, kubeletSocket,
			p.cfg.Dir)
	}
	if text != *said {
		*said = text
		p.cfg.Log("%s", text)
	}
	return time.After(registerAgain)
}

func (p *Plugin) registerOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	return Register(ctx, p.cfg.Dir, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: p.cfg.Socket, ResourceName: p.cfg.Resource,
		Options: p.options(),
	})
}

// Register calls Register of the device manager in dir, once. The error is fs.ErrNotExist while
// there is no kubelet.sock.
func Register(ctx context.Context, dir string, request *v1beta1.RegisterRequest) error {
	path := filepath.Join(dir, kubeletSocket)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	conn, err := socket.Client(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, request)
	return err
}

// SocketName returns the default name of a resource's socket.
func SocketName(resource string) string {
	return strings.ReplaceAll(resource, "/", "_") + ".sock"
}
