package gpu

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
	"github.com/numalet/numalet/deviceplugin/serve"
)

// server serves one resource.
type server struct {
	*serve.Plugin
	resource string
	cfg      Config

	mu    sync.Mutex
	offer offer
	links prefer.Links
}

func newServer(resource string, cfg Config) *server {
	s := &server{resource: resource, cfg: cfg}
	s.Plugin = serve.New(serve.Config{
		Resource: resource, Dir: cfg.Dir, Log: cfg.Log,
		Socket:   "numalet-" + strings.ReplaceAll(resource, "/", "-") + ".sock",
		Allocate: s.allocate, Prefer: s.prefer, Reasons: s.reasons,
		Places: s.places,
	})
	return s
}

// publish replaces the offer of the resource.
func (s *server) publish(o offer, links prefer.Links) {
	s.mu.Lock()
	s.offer, s.links = o, links
	s.mu.Unlock()
	s.SetDevices(listing(o))
}

func (s *server) current() (offer, prefer.Links) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer, s.links
}

func listing(o offer) (out []*v1beta1.Device) {
	for _, d := range o.devices {
		out = append(out, serve.Device(d.id, len(d.troubles) == 0, d.node))
	}
	return out
}

// reasons returns why devices are unhealthy, by id.
func (s *server) reasons() map[string]string {
	return s.texts(func(d device) string { return Describe(d.troubles) })
}

// places returns the PCI addresses of GPUs; MIG devices and replicas have that of their GPU.
func (s *server) places() map[string]string {
	return s.texts(func(d device) string { return d.bus })
}

func (s *server) texts(of func(device) string) map[string]string {
	o, _ := s.current()
	out := map[string]string{}
	for _, d := range o.devices {
		out[d.id] = of(d)
	}
	return out
}

// prefer picks size of the available devices.
func (s *server) prefer(available, must []string, size int) (ids []string, err error) {
	o, links := s.current()
	free, err := s.find(o, available)
	if err != nil {
		return nil, err
	}
	certain, err := s.find(o, must)
	if err != nil {
		return nil, err
	}
	for _, d := range o.choose(links, free, certain, size) {
		ids = append(ids, d.id)
	}
	return ids, nil
}

// allocate answers for the devices of one container.
func (s *server) allocate(_ context.Context, ids []string) (
	*v1beta1.ContainerAllocateResponse, error) {
	o, _ := s.current()
	devices, err := s.find(o, ids)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if len(d.troubles) > 0 {
			return nil, status.Errorf(codes.FailedPrecondition, "device %s is unhealthy: %s",
				d.id, Describe(d.troubles))
		}
	}
	if len(devices) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "no device of %s is named", s.resource)
	}
	answer, err := o.answer(s.resource, devices, s.cfg.Settings)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.cfg.Log("%s: allocated %s", s.resource, strings.Join(ids, ", "))
	return answer, nil
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
