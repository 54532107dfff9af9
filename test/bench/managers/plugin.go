package managers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin"
)

const benchResource = "example.com/bench"

// plugin is a device plugin that sends one of two lists when it is told to: all devices healthy, or
// all but one.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	devices int
	lists   [2]*pluginapi.ListAndWatchResponse
	send    chan int
	sent    chan time.Time // when the list, encoded, was handed to the connection
	server  *grpc.Server
	served  chan error
}

// servePlugin serves a plugin with so many devices, spread over eight nodes, on bench.sock in dir.
func servePlugin(ctx context.Context, dir string, devices int) (*plugin, error) {
	p := &plugin{
		devices: devices, send: make(chan int), sent: make(chan time.Time, 1),
		server: grpc.NewServer(), served: make(chan error, 1),
	}
	for i := range p.lists {
		p.lists[i] = listOf(devices, i)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, "bench.sock"))
	if err != nil {
		return nil, err
	}
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

func (p *plugin) stop() {
	p.server.Stop()
	<-p.served
}

// listOf has so many devices, the last of which are unhealthy.
func listOf(devices, unhealthy int) *pluginapi.ListAndWatchResponse {
	out := &pluginapi.ListAndWatchResponse{}
	for i := range devices {
		health := pluginapi.Healthy
		if i >= devices-unhealthy {
			health = pluginapi.Unhealthy
		}
		node := []*pluginapi.NUMANode{{ID: int64(i * 8 / devices)}}
		out.Devices = append(out.Devices, &pluginapi.Device{
			ID: fmt.Sprintf("device-%06d", i), Health: health,
			Topology: &pluginapi.TopologyInfo{Nodes: node},
		})
	}
	return out
}

func (p *plugin) register(ctx context.Context, dir string) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: "bench.sock", ResourceName: benchResource,
	})
	return err
}

// seen sends a list and returns how long it takes until the inventory is of that list.
func (p *plugin) seen(ctx context.Context, manager *deviceplugin.Plugins, list int) (
	time.Duration, error) {
	select {
	case p.send <- list:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		r := manager.Inventory().Resources[benchResource]
		if r.Connected && r.Allocatable == p.devices-list {
			now := time.Now()
			return now.Sub(<-p.sent), nil
		}
		select {
		case <-manager.Changed():
		case <-ctx.Done():
			return 0, fmt.Errorf("the inventory has %d healthy devices of %d: %w",
				r.Allocatable, p.devices-list, ctx.Err())
		}
	}
}

// GetDevicePluginOptions has none.
func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (
	*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch sends the lists that it is told to.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty,
	stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		select {
		case i := <-p.send:
			var encoded grpc.PreparedMsg
			if err := encoded.Encode(stream, p.lists[i]); err != nil {
				return err
			}
			p.sent <- time.Now()
			if err := stream.SendMsg(&encoded); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate answers with an environment variable for each container.
func (p *plugin) Allocate(_ context.Context, req *pluginapi.AllocateRequest) (
	*pluginapi.AllocateResponse, error) {
	if len(req.ContainerRequests) == 0 {
		return nil, errors.New("no container")
	}
	out := &pluginapi.AllocateResponse{}
	for range req.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses,
			&pluginapi.ContainerAllocateResponse{
				Envs: map[string]string{"BENCH": "1"},
			})
	}
	return out, nil
}
