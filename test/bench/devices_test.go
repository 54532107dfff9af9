package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

const benchResource = "example.com/bench"

// BenchmarkDevices measures the device manager with a plugin of few, many and very many devices,
// over real sockets, in wall-clock time. The time of a list is from the plugin's sending, already
// encoded, until the inventory has it: of the first list, and of lists in which one device's health
// changes. An admission plans a container with the devices under restricted and calls Allocate.
func BenchmarkDevices(b *testing.B) {
	for _, size := range []struct{ devices, ids int }{{8, 2}, {1000, 250}, {250_000, 1000}} {
		b.Run(fmt.Sprintf("devices=%d/ids=%d", size.devices, size.ids), func(b *testing.B) {
			ctx, dir := limited(b), b.TempDir()
			nodes := topology.NewNodeSet(0, 1, 2, 3, 4, 5, 6, 7)
			var inventory mailbox.Topic
			manager, err := devicemanager.New(devicemanager.Config{
				Dirs: devicemanager.Dirs{Plugins: dir}, NodeIDs: nodes, Changed: inventory.Publish,
			})
			must(b, err)
			runs(b, manager.Run)
			<-manager.Ready()
			p := servePlugin(b, dir, size.devices)
			p.changed = mailbox.Subscribe(&inventory)
			must(b, p.register(ctx, dir))
			first := p.seen(ctx, b, manager, 0)
			machine := invent(b, 8, 64)
			var changes, admissions times
			for b.Loop() {
				admissions = append(admissions, admit(ctx, b, manager, machine, size.ids))
			}
			for i := range 8 {
				time.Sleep(time.Second) // a device that changes again within one is held back
				changes = append(changes, p.seen(ctx, b, manager, (i+1)%2))
			}
			b.ReportMetric(0, "ns/op") // two things in one
			b.ReportMetric(float64(proto.Size(p.lists[0])), "list-B")
			b.ReportMetric(float64(first), "first-list-ns")
			changes.report(b, "health-change-")
			admissions.report(b, "admission-")
		})
	}
}

// admit plans a container that wants so many devices, and calls Allocate for them.
func admit(ctx context.Context, b *testing.B, manager *devicemanager.Plugins,
	machine *topology.Machine, ids int) time.Duration {
	pod := podtest.New("", podtest.Containers(fmt.Sprintf("main %s=%d", benchResource, ids)))
	begin := time.Now()
	view := allocation.View{
		Machine: machine, Inventory: manager.Inventory(),
		Rules: topology.Rules{Policy: topology.Restricted},
	}
	plan, err := view.Plan(pod, nil)
	must(b, err)
	held := plan.Pod.Containers["main"].Devices()
	if len(held) != 1 || len(held[0].IDs) != ids {
		b.Fatalf("the plan has %d resources, want %d devices of one", len(held), ids)
	}
	_, err = manager.Allocate(ctx, benchResource, held[0].IDs)
	must(b, err)
	return time.Since(begin)
}

// plugin is a device plugin that sends one of two lists on demand: all devices healthy, or all but
// one.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	lists [2]*pluginapi.ListAndWatchResponse
	send  chan int
	// changed has a value when the inventory is another.
	changed <-chan struct{}
	sent    chan time.Time // when the list, encoded, was handed to the connection
}

// servePlugin serves a plugin with so many devices, spread over eight nodes, on bench.sock in dir.
func servePlugin(b *testing.B, dir string, devices int) *plugin {
	p := &plugin{send: make(chan int), sent: make(chan time.Time, 1)}
	for unhealthy := range p.lists {
		list := &pluginapi.ListAndWatchResponse{}
		for i := range devices {
			health := pluginapi.Healthy
			if i >= devices-unhealthy {
				health = pluginapi.Unhealthy
			}
			node := []*pluginapi.NUMANode{{ID: int64(i * 8 / devices)}}
			list.Devices = append(list.Devices, &pluginapi.Device{
				ID: fmt.Sprintf("device-%06d", i), Health: health,
				Topology: &pluginapi.TopologyInfo{Nodes: node},
			})
		}
		p.lists[unhealthy] = list
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "bench.sock"))
	must(b, err)
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	runs(b, func(ctx context.Context) error {
		context.AfterFunc(ctx, server.Stop)
		return server.Serve(listener)
	})
	return p
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
func (p *plugin) seen(ctx context.Context, b *testing.B, manager *devicemanager.Plugins,
	list int) time.Duration {
	select {
	case p.send <- list:
	case <-ctx.Done():
		b.Fatal("the plugin is not asked for its devices")
	}
	healthy := len(p.lists[list].Devices) - list
	for {
		r := manager.Inventory().Resources[benchResource]
		if r.Connected && r.Allocatable == healthy {
			now := time.Now()
			return now.Sub(<-p.sent)
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			b.Fatalf("the inventory has %d healthy devices of %d", r.Allocatable, healthy)
		}
	}
}

// GetDevicePluginOptions has none.
func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (
	*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch sends the lists on demand.
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
	out := &pluginapi.AllocateResponse{}
	for range req.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, answer())
	}
	return out, nil
}

func answer() *pluginapi.ContainerAllocateResponse {
	return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"BENCH": "1"}}
}
