package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
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
	registerAgain    = time.Second
	answerDeadline   = 2 * time.Second
)

// Config says which devices are served, where, and what containers get with them.
type Config struct {
	// Dir is the device manager's directory, where kubelet.sock is or will be.
	Dir string
	// Resource is the extended resource, example.com/eni.
	Resource string
	// Allocate says what a container gets that is given devices, each of which has been listed.
	Allocate func(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error)
	// Prepare makes the devices ready before each start of their container. Nil: they always are.
	Prepare func(ctx context.Context, ids []string) error
	Log     *log.Logger
}

// Plugin is one resource's device plugin.
type Plugin struct {
	cfg  Config
	list *list
}

// New returns a plugin without devices, which Run serves.
func New(cfg Config) *Plugin { return &Plugin{cfg: cfg, list: newList()} }

// SetDevices replaces the list of devices. Who watches it hears of it if it differs.
func (p *Plugin) SetDevices(devices []*v1beta1.Device) { p.list.set(devices) }

// Devices is the list as it was set last. Nobody may change it.
func (p *Plugin) Devices() []*v1beta1.Device {
	devices, _ := p.list.get()
	return devices
}

// Run serves the plugin until ctx is done, and registers it whenever kubelet.sock is made.
func (p *Plugin) Run(ctx context.Context) error {
	// Watching begins before the first registration, so that no new socket is missed.
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
	name := SocketName(p.cfg.Resource)
	path := filepath.Join(p.cfg.Dir, name)
	if err := files.Remove(path); err != nil { // an earlier process may have left it
		return err
	}
	listener, err := socket.Listen(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	v1beta1.RegisterDevicePluginServer(server, &answers{plugin: p, ended: ctx.Done()})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = p.await(ctx, watcher, listener, served)
	cancel()
	stop(server)
	return err
}

// stop ends a server, and its socket with it. Calls that are under way get their answers unless
// that takes long.
func stop(server *grpc.Server) {
	defer time.AfterFunc(answerDeadline, server.Stop).Stop()
	server.GracefulStop()
}

// await registers, and returns when the session is over; the error is one of serving.
func (p *Plugin) await(
	ctx context.Context, watcher *fsnotify.Watcher, listener *socket.Listener, served <-chan error,
) error {
	due := time.After(0)
	for {
		select {
		case <-due:
			if due = p.register(ctx); due == nil {
				p.cfg.Log.Printf("%s: registered, serving on %s", p.cfg.Resource, listener.Path())
			}
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletSocket {
				return nil
			}
			if listener.Gone() { // a device manager that starts removes all sockets
				return nil
			}
		case err := <-watcher.Errors:
			p.cfg.Log.Printf("watch %s: %v", p.cfg.Dir, err)
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// register tells the device manager of the plugin. When that failed it returns when to try again;
// that there is no device manager yet is not worth a line each time.
func (p *Plugin) register(ctx context.Context) <-chan time.Time {
	err := p.registerOnce(ctx)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
		p.cfg.Log.Printf("%s: register: %v; trying again in %s", p.cfg.Resource, err, registerAgain)
	}
	return time.After(registerAgain)
}

func (p *Plugin) registerOnce(ctx context.Context) error {
	path := filepath.Join(p.cfg.Dir, kubeletSocket)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     SocketName(p.cfg.Resource),
		ResourceName: p.cfg.Resource,
		Options:      p.options(),
	})
	return err
}

func (p *Plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{PreStartRequired: p.cfg.Prepare != nil}
}

// SocketName is the name of a resource's socket in the device manager's directory.
func SocketName(resource string) string {
	return strings.ReplaceAll(resource, "/", "_") + ".sock"
}
