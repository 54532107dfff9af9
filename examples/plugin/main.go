// Command plugin is a complete device plugin. Its devices are the files of a folder; one that says
// "broken" is unhealthy.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "example.com/widget"
	endpoint = "widget.sock"
)

func main() {
	dir := flag.String("dir", "/var/lib/kubelet/device-plugins", "where kubelet.sock is")
	folder := flag.String("widgets", "/var/lib/widgets", "folder whose files are the devices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *folder); err != nil {
		log.Fatal(err)
	}
}

// run serves the plugin, and anew whenever kubelet.sock is made: the agent was restarted.
func run(ctx context.Context, dir, folder string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for _, path := range []string{dir, folder} {
		if err := watcher.Add(path); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
	folder, err = filepath.Abs(folder) // runtimes take no relative path
	if err != nil {
		return err
	}
	p := &plugin{folder: folder, changed: make(chan struct{})}
	for ctx.Err() == nil {
		server, err := p.serve(filepath.Join(dir, endpoint)) // first serve,
		if err != nil {
			return err
		}
		var retry <-chan time.Time
		if err := register(ctx, filepath.Join(dir, "kubelet.sock")); err != nil { // then register
			log.Print(err)
			retry = time.After(time.Second)
		}
		for anew := false; !anew; {
			select {
			case e := <-watcher.Events:
				anew = e.Has(fsnotify.Create) && filepath.Base(e.Name) == "kubelet.sock"
				if filepath.Dir(e.Name) == filepath.Clean(folder) {
					p.change()
				}
			case <-retry:
				anew = true
			case <-ctx.Done():
				anew = true
			}
		}
		server.Stop() // its socket goes with it
	}
	return nil
}

// register tells the agent of the plugin.
func register(ctx context.Context, kubelet string) error {
	conn, err := grpc.NewClient("unix:"+kubelet,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	folder  string
	mu      sync.Mutex
	changed chan struct{} // closed and made anew when a device has changed
}

// serve serves the plugin on a socket, in place of one that was left behind.
func (p *plugin) serve(socket string) (*grpc.Server, error) {
	_ = os.Remove(socket) // there may be none
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }() // until Stop
	return server, nil
}

func (p *plugin) change() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plugin) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// GetDevicePluginOptions implements v1beta1.DevicePluginServer: nothing beyond the rest is offered.
func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (
	*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch implements v1beta1.DevicePluginServer: the whole list at once and on each change.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty,
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		next := p.next()
		devices, err := p.list()
		if err != nil {
			return err
		}
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-next:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) list() (devices []*v1beta1.Device, err error) {
	files, err := os.ReadDir(p.folder)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(p.folder, file.Name()))
		if err != nil {
			continue // it has just gone
		}
		health := v1beta1.Healthy
		if strings.HasPrefix(string(text), "broken") {
			health = v1beta1.Unhealthy
		}
		devices = append(devices, &v1beta1.Device{ID: file.Name(), Health: health})
	}
	return devices, err
}

// Allocate implements v1beta1.DevicePluginServer: what containers get. It keeps no account.
func (p *plugin) Allocate(_ context.Context, req *v1beta1.AllocateRequest) (
	*v1beta1.AllocateResponse, error) {
	resp := &v1beta1.AllocateResponse{}
	for _, container := range req.GetContainerRequests() {
		answer := &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"WIDGETS": strings.Join(container.GetDevicesIds(), ",")},
		}
		for _, id := range container.GetDevicesIds() {
			path := filepath.Join(p.folder, filepath.Base(id))
			if _, err := os.Stat(path); err != nil {
				return nil, status.Errorf(codes.NotFound, "there is no widget %q", id)
			}
			answer.Mounts = append(answer.Mounts, &v1beta1.Mount{
				HostPath: path, ContainerPath: "/widgets/" + id, ReadOnly: true,
			})
		}
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
	}
	return resp, nil
}
