package gpu

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/await"
)

// server serves v1beta1 for one resource.
type server struct {
	v1beta1.UnimplementedDevicePluginServer
	resource string
	set      Settings
	log      func(format string, args ...any)

	mu      sync.Mutex
	offer   offer
	links   prefer.Links
	changed chan struct{} // closed and made anew when the kubelet is to get another list
}

func newServer(resource string, set Settings, log func(string, ...any)) *server {
	return &server{resource: resource, set: set, log: log, changed: make(chan struct{})}
}

func options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// publish is what the resource has from now on.
func (s *server) publish(o offer, links prefer.Links) {
	s.mu.Lock()
	defer s.mu.Unlock()
	anew := !o.same(s.offer)
	s.offer, s.links = o, links
	if anew {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *server) current() (offer, prefer.Links, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer, s.links, s.changed
}

// GetDevicePluginOptions implements v1beta1.DevicePluginServer.
func (s *server) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (
	*v1beta1.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch implements v1beta1.DevicePluginServer: the whole list at once and on each change.
func (s *server) ListAndWatch(_ *v1beta1.Empty,
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		o, _, changed := s.current()
		if err := stream.Send(listing(o)); err != nil {
			return err
		}
		if !await.On(stream.Context(), changed) {
			return nil
		}
	}
}

func listing(o offer) *v1beta1.ListAndWatchResponse {
	out := &v1beta1.ListAndWatchResponse{}
	for _, d := range o.devices {
		one := &v1beta1.Device{ID: d.id, Health: v1beta1.Healthy}
		if len(d.troubles) > 0 {
			one.Health = v1beta1.Unhealthy
		}
		if d.node != topology.NoNode {
			one.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(d.node)}}}
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}

// reasons are why devices are unhealthy, by id.
func (s *server) reasons(ids []string) map[string]string {
	o, _, _ := s.current()
	out := map[string]string{}
	for _, d := range o.devices {
		if len(d.troubles) > 0 && slices.Contains(ids, d.id) {
			out[d.id] = describe(d.troubles)
		}
	}
	return out
}

// GetPreferredAllocation implements v1beta1.DevicePluginServer.
func (s *server) GetPreferredAllocation(_ context.Context,
	req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	o, links, _ := s.current()
	out := &v1beta1.PreferredAllocationResponse{}
	for _, r := range req.GetContainerRequests() {
		available, err := s.find(o, r.GetAvailableDeviceIDs())
		if err != nil {
			return nil, err
		}
		must, err := s.find(o, r.GetMustIncludeDeviceIDs())
		if err != nil {
			return nil, err
		}
		chosen := o.choose(links, available, must, int(r.GetAllocationSize()))
		ids := make([]string, 0, len(chosen))
		for _, d := range chosen {
			ids = append(ids, d.id)
		}
		out.ContainerResponses = append(out.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate implements v1beta1.DevicePluginServer.
func (s *server) Allocate(_ context.Context, req *v1beta1.AllocateRequest) (
	*v1beta1.AllocateResponse, error) {
	o, _, _ := s.current()
	out := &v1beta1.AllocateResponse{}
	for _, r := range req.GetContainerRequests() {
		devices, err := s.find(o, r.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		for _, d := range devices {
			if len(d.troubles) > 0 {
				return nil, status.Errorf(codes.FailedPrecondition, "device %s is unhealthy: %s",
					d.id, describe(d.troubles))
			}
		}
		if len(devices) == 0 {
			return nil, status.Errorf(codes.InvalidArgument, "no device of %s is named", s.resource)
		}
		answer, err := o.answer(s.resource, devices, s.set)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		s.log("%s: allocated %s", s.resource, strings.Join(r.GetDevicesIds(), ", "))
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}

// find looks up devices by id, each once.
func (s *server) find(o offer, ids []string) (found []device, err error) {
	byID := make(map[string]device, len(o.devices))
	for _, d := range o.devices {
		byID[d.id] = d
	}
	named := make(map[string]bool, len(ids))
	for _, id := range ids {
		d, known := byID[id]
		if !known {
			return nil, status.Errorf(codes.NotFound, "%s has no device %q", s.resource, id)
		}
		if !named[id] {
			found = append(found, d)
		}
		named[id] = true
	}
	return found, nil
}
