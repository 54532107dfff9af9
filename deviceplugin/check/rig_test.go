package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/deviceplugin/socket"
)

const gpu = "example.com/gpu"

// plugin is a good device plugin; a test makes one thing wrong.
type plugin struct {
	request  func(dir string, req *v1beta1.RegisterRequest)
	info     func(*registerapi.PluginInfo)
	notice   error
	registry bool   // registers by the plugin registry
	socket   string // its name
	// late: it serves only after it has registered; nowhere: it never serves; sessions bounds its
	// registrations; keep leaves its socket behind; stale keeps an old one.
	late, nowhere, keep, stale bool
	sessions                   int
	looks                      time.Duration // how often it checks kubelet.sock; 0: all the time
	insists                    time.Duration // how often it registers again; 0: never
	options                    *v1beta1.DevicePluginOptions
	optionsErr                 error
	// list replaces ListAndWatch; it gets the number of the stream in this run.
	list     func(s *served, stream int, to lister) error
	devices  []*v1beta1.Device
	allocate func(ctx context.Context, s *served, ids []string) (
		*v1beta1.ContainerAllocateResponse, error)
	answers  func(*v1beta1.AllocateResponse)
	prefer   func(available, must []string, size int) ([]string, error)
	preStart func(times int) error
	released func(s *served, ids []string) error // nil: not served
	// reasons and places answer for these devices; nil: not served.
	reasons, places func(ids []string) map[string]string
	also            string // a second resource of the same socket
	// deaf selects changes of devices that are not listed.
	deaf func(was, is []*v1beta1.Device) bool

	mu  sync.Mutex
	now *served
}

type lister = grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]

// served is one run of a plugin.
type served struct {
	v1beta1.UnimplementedDevicePluginServer
	registerapi.UnimplementedRegistrationServer
	*plugin

	mu      sync.Mutex
	devices []*v1beta1.Device
	changed chan struct{}
	streams int
	starts  int
	account map[string]string
	shared  string
	busy    chan struct{}
}

func good() *plugin {
	return &plugin{
		options: &v1beta1.DevicePluginOptions{
			GetPreferredAllocationAvailable: true, PreStartRequired: true,
		},
		devices: invented(4), socket: "p.sock",
	}
}

func invented(n int) (out []*v1beta1.Device) {
	for i := range n {
		out = append(out, &v1beta1.Device{
			ID: fmt.Sprint("gpu-", i), Health: v1beta1.Healthy,
			Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 0}}},
		})
	}
	return out
}

// run serves until ctx is done, with a new session whenever kubelet.sock is a new one.
func (p *plugin) run(ctx context.Context, dirs Dirs) error {
	s := &served{
		plugin: p, devices: slices.Clone(p.devices), changed: make(chan struct{}),
		account: map[string]string{}, busy: make(chan struct{}, 1),
	}
	p.mu.Lock()
	p.now = s
	p.mu.Unlock()
	if p.registry {
		return s.session(ctx, dirs.Registry, func() bool { return true })
	}
	kubelet := filepath.Join(dirs.Plugins, "kubelet.sock")
	for n := 0; ctx.Err() == nil; n++ {
		if p.sessions > 0 && n >= p.sessions {
			<-ctx.Done()
			return nil
		}
		was := identity(kubelet)
		if err := s.session(ctx, dirs.Plugins, func() bool {
			is := identity(kubelet)
			return is == was || is == ""
		}); err != nil {
			return err
		}
	}
	return nil
}

// identity tells a file from a later one of the same name.
func identity(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Ino, stat.Mtim)
}

// session serves and registers until holds returns false or ctx is done.
func (s *served) session(ctx context.Context, dir string, holds func() bool) error {
	path := filepath.Join(dir, s.socket)
	if !s.stale {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	server := grpc.NewServer()
	defer server.Stop()
	v1beta1.RegisterDevicePluginServer(server, s)
	if s.registry {
		registerapi.RegisterRegistrationServer(server, s)
	}
	if s.released != nil || s.reasons != nil || s.places != nil {
		lifecyclev1.RegisterLifecycleServer(server, lifecycle{served: s})
	}
	serve := func() error {
		if s.nowhere {
			return nil
		}
		l, err := socket.Listen(path)
		if err != nil {
			return err
		}
		if s.keep {
			l.Abandon()
		}
		go func() { _ = server.Serve(l) }()
		return nil
	}
	if !s.late {
		if err := serve(); err != nil {
			return err
		}
	}
	if !s.registry {
		if err := s.register(ctx, dir); err != nil && ctx.Err() == nil && !s.late {
			time.Sleep(50 * time.Millisecond) // the next session tries again
			return nil
		}
	}
	if s.late {
		if err := serve(); err != nil {
			return err
		}
	}
	looked, registered := time.Now(), time.Now()
	for ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		if s.insists > 0 && time.Since(registered) > s.insists {
			registered = time.Now()
			_ = s.register(ctx, dir) // the agent may just be away
		}
		if time.Since(looked) < s.looks {
			continue
		}
		if looked = time.Now(); !holds() {
			break
		}
	}
	return nil
}

// lifecycle is the plugin's second service.
type lifecycle struct {
	lifecyclev1.UnimplementedLifecycleServer
	*served
}

func (l lifecycle) Reasons(_ context.Context, req *lifecyclev1.ReasonsRequest) (
	*lifecyclev1.ReasonsResponse, error) {
	if l.served.reasons == nil {
		return nil, status.Error(codes.Unimplemented, "no reasons")
	}
	return &lifecyclev1.ReasonsResponse{Reasons: l.served.reasons(req.GetDeviceIds())}, nil
}

func (l lifecycle) Places(_ context.Context, req *lifecyclev1.PlacesRequest) (
	*lifecyclev1.PlacesResponse, error) {
	if l.served.places == nil {
		return nil, status.Error(codes.Unimplemented, "no places")
	}
	out := &lifecyclev1.PlacesResponse{Places: map[string]*lifecyclev1.Place{}}
	for id, address := range l.served.places(req.GetDeviceIds()) {
		out.Places[id] = &lifecyclev1.Place{PciAddress: address}
	}
	return out, nil
}

func (l lifecycle) Released(_ context.Context, req *lifecyclev1.ReleasedRequest) (
	*lifecyclev1.ReleasedResponse, error) {
	if l.served.released == nil {
		return nil, status.Error(codes.Unimplemented, "not told")
	}
	return &lifecyclev1.ReleasedResponse{}, l.served.released(l.served, req.GetDeviceIds())
}

func (s *served) register(ctx context.Context, dir string) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	req := &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: s.socket, ResourceName: gpu, Options: s.options,
	}
	if s.request != nil {
		s.request(dir, req)
	}
	if _, err = v1beta1.NewRegistrationClient(conn).Register(ctx, req); err != nil || s.also == "" {
		return err
	}
	req.ResourceName = s.also
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, req)
	return err
}

func (s *served) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo,
	error) {
	info := &registerapi.PluginInfo{
		Type: registerapi.DevicePlugin, Name: gpu, SupportedVersions: []string{v1beta1.Version},
	}
	if s.info != nil {
		s.info(info)
	}
	return info, nil
}

func (s *served) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (
	*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, s.notice
}

func (s *served) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (
	*v1beta1.DevicePluginOptions, error) {
	return s.options, s.optionsErr
}

func (s *served) ListAndWatch(_ *v1beta1.Empty, to lister) error {
	s.mu.Lock()
	s.streams++
	n := s.streams
	s.mu.Unlock()
	if s.plugin.list != nil {
		return s.plugin.list(s, n, to)
	}
	return s.follow(to)
}

// follow sends the list and each change.
func (s *served) follow(to lister) error {
	var last []*v1beta1.Device
	for first := true; ; first = false {
		devices, changed := s.state()
		if first || s.deaf == nil || !s.deaf(last, devices) {
			if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		}
		last = devices
		select {
		case <-changed:
		case <-to.Context().Done():
			return nil
		}
	}
}

func (s *served) state() ([]*v1beta1.Device, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices, s.changed
}

// change replaces the devices.
func (s *served) change(devices []*v1beta1.Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices = devices
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *served) Allocate(ctx context.Context, req *v1beta1.AllocateRequest) (
	*v1beta1.AllocateResponse, error) {
	resp := &v1beta1.AllocateResponse{}
	for _, r := range req.GetContainerRequests() {
		allocate := s.plugin.allocate
		if allocate == nil {
			allocate = plain
		}
		a, err := allocate(ctx, s, r.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		resp.ContainerResponses = append(resp.ContainerResponses, a)
	}
	if s.answers != nil {
		s.answers(resp)
	}
	return resp, nil
}

// plain is a good plugin's Allocate.
func plain(_ context.Context, s *served, ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	devices, _ := s.state()
	known := map[string]bool{}
	for _, d := range devices {
		known[d.GetID()] = true
	}
	for _, id := range ids {
		if !known[id] {
			return nil, fmt.Errorf("there is no device %q", id)
		}
	}
	return &v1beta1.ContainerAllocateResponse{
		Envs: map[string]string{"GPUS": strings.Join(ids, ",")},
	}, nil
}

func (s *served) GetPreferredAllocation(_ context.Context,
	req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, r := range req.GetContainerRequests() {
		prefer := s.plugin.prefer
		if prefer == nil {
			prefer = firsts
		}
		ids, err := prefer(r.GetAvailableDeviceIDs(), r.GetMustIncludeDeviceIDs(),
			int(r.GetAllocationSize()))
		if err != nil {
			return nil, err
		}
		resp.ContainerResponses = append(resp.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return resp, nil
}

// firsts is a good plugin's GetPreferredAllocation.
func firsts(available, must []string, size int) ([]string, error) {
	ids := slices.Clone(must)
	for _, id := range available {
		if len(ids) < size && !slices.Contains(must, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (s *served) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (
	*v1beta1.PreStartContainerResponse, error) {
	s.mu.Lock()
	s.starts++
	n := s.starts
	s.mu.Unlock()
	if s.plugin.preStart != nil {
		if err := s.plugin.preStart(n); err != nil {
			return nil, err
		}
	}
	return &v1beta1.PreStartContainerResponse{}, nil
}

// levers returns the levers of the running plugin.
func (p *plugin) levers() map[Lever]func(context.Context) error {
	lever := func(next func([]*v1beta1.Device) []*v1beta1.Device) func(context.Context) error {
		return func(context.Context) error {
			p.mu.Lock()
			s := p.now
			p.mu.Unlock()
			devices, _ := s.state()
			s.change(next(slices.Clone(devices)))
			return nil
		}
	}
	health := func(word string) func([]*v1beta1.Device) []*v1beta1.Device {
		return func(devices []*v1beta1.Device) []*v1beta1.Device {
			devices[0] = &v1beta1.Device{
				ID: devices[0].GetID(), Health: word, Topology: devices[0].GetTopology(),
			}
			return devices
		}
	}
	return map[Lever]func(context.Context) error{
		Sicken: lever(health(v1beta1.Unhealthy)),
		Cure:   lever(health(v1beta1.Healthy)),
		Vanish: lever(func(devices []*v1beta1.Device) []*v1beta1.Device { return devices[1:] }),
		Return: lever(func([]*v1beta1.Device) []*v1beta1.Device { return p.devices }),
		Multiply: lever(func([]*v1beta1.Device) []*v1beta1.Device {
			return invented(many)
		}),
	}
}
