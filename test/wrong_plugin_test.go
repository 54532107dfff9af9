package test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// wrongPlugin is a device plugin in the test's process. Where a field is not set, it behaves
// correctly.
type wrongPlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	nowhere  bool                         // it registers and serves nothing
	registry bool                         // it uses the plugin registry, and cannot be notified
	times    int                          // how often it registers after the first time
	says     *v1beta1.DevicePluginOptions // the options in its registration
	request  func(*v1beta1.RegisterRequest)
	options  func(context.Context, *v1beta1.DevicePluginOptions) error
	devices  []*v1beta1.Device
	list     func(grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error
	allocate func(context.Context, *v1beta1.AllocateResponse) error
	prefer   func(*v1beta1.ContainerPreferredAllocationRequest) ([]string, error)
	preStart func() error
	reasons  func(context.Context) error // called for the reasons why devices are unhealthy
}

func goodDevices() (out []*v1beta1.Device) {
	for _, id := range []string{"dev-0", "dev-1", "dev-2"} {
		out = append(out, &v1beta1.Device{ID: id, Health: v1beta1.Healthy,
			Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 0}}}})
	}
	return out
}

// GetDevicePluginOptions implements v1beta1.DevicePluginServer.
func (p *wrongPlugin) GetDevicePluginOptions(ctx context.Context, _ *v1beta1.Empty) (
	*v1beta1.DevicePluginOptions, error) {
	out := &v1beta1.DevicePluginOptions{
		GetPreferredAllocationAvailable: p.prefer != nil, PreStartRequired: p.preStart != nil,
	}
	if p.options != nil {
		return out, p.options(ctx, out)
	}
	return out, nil
}

// ListAndWatch implements v1beta1.DevicePluginServer.
func (p *wrongPlugin) ListAndWatch(_ *v1beta1.Empty,
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	if p.list != nil {
		return p.list(stream)
	}
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate implements v1beta1.DevicePluginServer.
func (p *wrongPlugin) Allocate(ctx context.Context, _ *v1beta1.AllocateRequest) (
	*v1beta1.AllocateResponse, error) {
	out := &v1beta1.AllocateResponse{
		ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}},
	}
	if p.allocate != nil {
		return out, p.allocate(ctx, out)
	}
	return out, nil
}

// GetPreferredAllocation implements v1beta1.DevicePluginServer.
func (p *wrongPlugin) GetPreferredAllocation(_ context.Context,
	req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	ids, err := p.prefer(req.ContainerRequests[0])
	return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.
		ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, err
}

// PreStartContainer implements v1beta1.DevicePluginServer.
func (p *wrongPlugin) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (
	*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, p.preStart()
}

// begin serves the plugin in a folder of device plugins and registers it, correctly except for its
// mistake.
func (p *wrongPlugin) begin(t *testing.T, dir, name, resource string) {
	t.Helper()
	if !p.nowhere {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		v1beta1.RegisterDevicePluginServer(server, p)
		if p.reasons != nil {
			lifecyclev1.RegisterLifecycleServer(server, silent{asked: p.reasons})
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(l) // until Stop
		}()
		t.Cleanup(func() {
			server.Stop()
			<-done
		})
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request := &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: name, ResourceName: resource, Options: p.says,
	}
	if p.registry {
		p.announce(t, filepath.Join(dir, "..", "plugins_registry", name), &registerapi.PluginInfo{
			Type: registerapi.DevicePlugin, Name: resource, Endpoint: filepath.Join(dir, name),
			SupportedVersions: []string{v1beta1.Version},
		})
		return
	}
	if p.request != nil {
		p.request(request)
	}
	client := v1beta1.NewRegistrationClient(conn)
	for range p.times {
		if _, err := client.Register(ctx, request); err != nil {
			t.Fatalf("Register: %v", err)
		}
	}
	_, err = client.Register(ctx, request)
	if p.options == nil && (err != nil) != (p.request != nil) {
		t.Fatalf("Register: %v", err)
	}
}

// announce serves the plugin's information in the plugin registry.
func (p *wrongPlugin) announce(t *testing.T, socket string, info *registerapi.PluginInfo) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, stubborn{info: info})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
}

// silent serves Reasons and returns only an error.
type silent struct {
	lifecyclev1.UnimplementedLifecycleServer
	asked func(context.Context) error
}

// Reasons implements lifecyclev1.LifecycleServer.
func (s silent) Reasons(ctx context.Context, req *lifecyclev1.ReasonsRequest) (
	*lifecyclev1.ReasonsResponse, error) {
	if len(req.GetDeviceIds()) == 0 {
		return &lifecyclev1.ReasonsResponse{}, nil
	}
	return nil, s.asked(ctx)
}

// stubborn is a plugin of the registry that does not serve NotifyRegistrationStatus.
type stubborn struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
}

// GetInfo implements registerapi.RegistrationServer.
func (s stubborn) GetInfo(context.Context, *registerapi.InfoRequest) (
	*registerapi.PluginInfo, error) {
	return s.info, nil
}

var errNoFile = errors.New("no such file")

// hang answers only when nobody waits any more.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// spoil changes the first device.
func spoil(change func(*v1beta1.Device)) func(*wrongPlugin) {
	return func(p *wrongPlugin) { change(p.devices[0]) }
}

// spoilAnswer changes the answer to Allocate.
func spoilAnswer(change func(*v1beta1.ContainerAllocateResponse)) func(*wrongPlugin) {
	return func(p *wrongPlugin) {
		p.allocate = func(_ context.Context, out *v1beta1.AllocateResponse) error {
			change(out.ContainerResponses[0])
			return nil
		}
	}
}

func prefersBy(choose func(*v1beta1.ContainerPreferredAllocationRequest) ([]string, error)) func(
	*wrongPlugin) {
	return func(p *wrongPlugin) { p.prefer = choose }
}

// listEnds sends the list and ends the stream, with how as the error if it is not nil.
func listEnds(how error) func(*wrongPlugin) {
	return func(p *wrongPlugin) {
		p.list = func(to grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
			return errors.Join(to.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}), how)
		}
	}
}
