package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/test/harness"
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

// heard holds the texts that each place must show about a wrong plugin. A place with "" need not
// show anything: a pod that gets what it requests has no event.
type heard struct{ log, event, explain, list, problems string }

// waits expects the text in all places but the pod's events, which say what the pod waits for.
func waits(text string) heard {
	h := everywhere(text)
	h.event = "WaitingForDevicePlugin: "
	return h
}

// everywhere expects the text in all places but the pod's events.
func everywhere(text string) heard { return heard{text, "", text, text, text} }

// andEvent expects the text in the pod's events, too.
func (h heard) andEvent() heard {
	h.event = h.log
	return h
}

const (
	isAbsent      = `"/dev/numalet-absent" is what the device plugin of example.com/absent on absent.sock`
	manyAnswers   = "answered Allocate for more containers"
	wantsAllocate = "has to answer with one response for each container"
	wantsPrefer   = "has to answer with as many devices as are asked for"
	wantsPreStart = "has to answer, in time, when the devices can be used"
	ownChoice     = "without the device plugin's preference"
)

// calledFor is for a call that fails for a pod: the log, the event and the list have the plugin's
// words, and the other places also say what the protocol requires.
func calledFor(said, wants string) heard { return heard{said, said, wants, said, wants} }

var wrongs = []struct {
	name string
	make func(*wrongPlugin)
	says heard
}{
	{"version", func(p *wrongPlugin) {
		p.request = func(r *v1beta1.RegisterRequest) { r.Version = "v1alpha" }
	}, waits("v1alpha")},
	{"endpoint", func(p *wrongPlugin) {
		p.request = func(r *v1beta1.RegisterRequest) { r.Endpoint = "/tmp/p.sock" }
	}, waits("without a path")},
	{"nowhere", func(p *wrongPlugin) { p.nowhere = true },
		waits("nowhere.sock: connect: no such file")},
	{"options-fail", func(p *wrongPlugin) {
		p.options = func(context.Context, *v1beta1.DevicePluginOptions) error { return errNoFile }
	}, waits("code = Unknown desc = no such file; a plugin has to answer GetDevicePluginOptions")},
	{"options-hang", func(p *wrongPlugin) {
		p.options = func(ctx context.Context, _ *v1beta1.DevicePluginOptions) error {
			return hang(ctx)
		}
	}, waits("device plugin options: it was not answered in time (2s); a plugin has to")},
	{"no-list", func(p *wrongPlugin) {
		p.list = func(to grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
			return hang(to.Context())
		}
	}, waits("no list of devices came in time (2s); a plugin has to send its list")},
	{"list-ends", listEnds(nil),
		everywhere("it ended its ListAndWatch stream; a plugin has to keep it open")},
	{"list-fails", listEnds(status.Error(codes.Internal, "lost the driver")),
		heard{"lost the driver", "", "", "lost the driver", "ListAndWatch: rpc error"}},
	{"no-devices", func(p *wrongPlugin) { p.devices = nil },
		heard{"lists no devices", "lists no devices", "lists no devices", "lists no devices",
			"lists no devices"}},
	{"no-node", spoil(func(d *v1beta1.Device) { d.Topology.Nodes = nil }),
		everywhere("leave Topology nil")},
	{"long-list", func(p *wrongPlugin) {
		for i := range 2000 {
			p.devices = append(p.devices, &v1beta1.Device{
				ID: fmt.Sprintf("%03000d", i), Health: v1beta1.Healthy,
			})
		}
	}, everywhere("has more than 4 MiB; it is read here, but the kubelet")},
	{"repeats", func(p *wrongPlugin) {
		p.list = func(to grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
			for range 80 {
				if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
					return err
				}
			}
			return hang(to.Context())
		}
	}, everywhere("send the list when a device has changed")},
	{"often", func(p *wrongPlugin) { p.times = 20 }, everywhere("and not on a timer")},
	{"options-differ", func(p *wrongPlugin) {
		p.says = &v1beta1.DevicePluginOptions{PreStartRequired: true}
	}, everywhere("which count: say the same in both")},
	{"notice", func(p *wrongPlugin) { p.registry = true },
		everywhere("it does not take NotifyRegistrationStatus")},
	{"no-id", spoil(func(d *v1beta1.Device) { d.ID = "" }), everywhere("give every device an id")},
	{"id-twice", spoil(func(d *v1beta1.Device) { d.ID = "dev-1" }), everywhere("list each id once")},
	{"health-word", spoil(func(d *v1beta1.Device) { d.Health = "healthy" }),
		everywhere("send Healthy or Unhealthy")},
	{"bad-node", spoil(func(d *v1beta1.Device) { d.Topology.Nodes[0].ID = -1 }),
		everywhere("as sysfs has it")},
	{"alloc-fails", func(p *wrongPlugin) {
		p.allocate = func(context.Context, *v1beta1.AllocateResponse) error { return errNoFile }
	}, heard{"no such file", "is unexpected; the call was Allocate of the device plugin of " +
		"example.com/alloc-fails on alloc-fails.sock", wantsAllocate, "no such file", wantsAllocate}},
	{"alloc-hangs", func(p *wrongPlugin) {
		p.allocate = func(ctx context.Context, _ *v1beta1.AllocateResponse) error {
			return hang(ctx)
		}
	}, heard{"within its deadline of 2s", "WaitingForDevicePlugin: ", wantsAllocate, "within its deadline of 2s",
		wantsAllocate}},
	{"alloc-none", func(p *wrongPlugin) {
		p.allocate = func(_ context.Context, out *v1beta1.AllocateResponse) error {
			out.ContainerResponses = nil
			return nil
		}
	}, calledFor("no containers return in allocation response", wantsAllocate)},
	{"alloc-two", func(p *wrongPlugin) {
		p.allocate = func(_ context.Context, out *v1beta1.AllocateResponse) error {
			out.ContainerResponses = append(out.ContainerResponses, out.ContainerResponses[0])
			return nil
		}
	}, heard{manyAnswers, "", wantsAllocate, "it answered for 2 containers", wantsAllocate}},
	{"relative", spoilAnswer(func(a *v1beta1.ContainerAllocateResponse) {
		a.Devices = []*v1beta1.DeviceSpec{{HostPath: "dev/null", ContainerPath: "/dev/null",
			Permissions: "rw"}}
	}), everywhere("of a device is not absolute").andEvent()},
	{"absent", spoilAnswer(func(a *v1beta1.ContainerAllocateResponse) {
		a.Devices = []*v1beta1.DeviceSpec{{HostPath: "/dev/numalet-absent", ContainerPath: "/dev/x",
			Permissions: "rw"}}
	}), heard{log: "numalet-absent", event: isAbsent}},
	{"prefer-fails", prefersBy(func(*v1beta1.ContainerPreferredAllocationRequest) (
		[]string, error) {
		return nil, errNoFile
	}), heard{"no such file", ownChoice, wantsPrefer, "no such file", wantsPrefer}},
	{"prefer-other", prefersBy(func(*v1beta1.ContainerPreferredAllocationRequest) (
		[]string, error) {
		return []string{"dev-9"}, nil
	}), heard{"does not list: dev-9", ownChoice, wantsPrefer, "does not list: dev-9", wantsPrefer}},
	{"prefer-few", prefersBy(func(*v1beta1.ContainerPreferredAllocationRequest) ([]string, error) {
		return nil, nil
	}), heard{"0 of its devices", ownChoice, wantsPrefer, "0 of its devices", wantsPrefer}},
	{"prefer-many", prefersBy(func(r *v1beta1.ContainerPreferredAllocationRequest) (
		[]string, error) {
		return slices.Clone(r.AvailableDeviceIDs), nil
	}), heard{"3 of its devices", ownChoice, wantsPrefer, "3 of its devices", wantsPrefer}},
	{"reasons-hang", func(p *wrongPlugin) {
		p.devices[0].Health, p.reasons = v1beta1.Unhealthy, hang
	}, heard{"does not say why devices are unhealthy", "", "with success, within a second", "Reasons: ",
		"with success, within a second"}},
	{"pre-start", func(p *wrongPlugin) {
		p.preStart = func() error { return errors.New("no reset") }
	}, calledFor("no reset", wantsPreStart)},
}

// TestPluginsThatAreWrong: all places that users look at say what each plugin did and what the
// protocol requires.
func TestPluginsThatAreWrong(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	for _, call := range []string{"dial", "options", "first-list", "preferred", "allocate"} {
		n.Args = append(n.Args, "--device-plugin-"+call+"-timeout=2s")
	}
	n.Start()
	for _, w := range wrongs {
		p := &wrongPlugin{devices: goodDevices()}
		w.make(p)
		p.begin(t, filepath.Join(n.Root, "device-plugins"), w.name+".sock", "example.com/"+w.name)
		n.Pod(w.name, limited(w.name, "cpu: 10m, memory: 16Mi, example.com/"+w.name+": 1"))
	}
	for _, w := range wrongs {
		t.Run(w.name, func(t *testing.T) {
			n.As(t).Eventually("everybody hears of it", func() error { return w.says.by(t, n, w.name) })
		})
	}
}

// by returns which places do not show their text about the plugin and its pod.
func (h heard) by(t *testing.T, n *harness.Node, name string) error {
	resource := "example.com/" + name
	explained, _ := explainPod(t, n, name+"-node") // an error is in its text
	var missing []error
	for _, place := range []struct{ name, text, want string }{
		{"the log", linesOf(n.LogTail(100_000), name), h.log},
		{"the pod's events", eventsOf(n, name+"-node"), h.event},
		{"numalet explain", explained, h.explain},
		{"/plugins", entryOf(n, "/plugins", resource), h.list},
		{"/problems", entryOf(n, "/problems", resource), h.problems},
	} {
		if !strings.Contains(place.text, place.want) {
			missing = append(missing, fmt.Errorf("%s lacks %q: %.1500s", place.name, place.want,
				place.text))
		}
	}
	return errors.Join(missing...)
}

// linesOf returns the lines of the log about a plugin or its pod.
func linesOf(log, name string) string {
	var out []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "example.com/"+name) || strings.Contains(line, name+"-node") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func eventsOf(n *harness.Node, pod string) (text string) {
	var list v1.EventList
	if err := json.Unmarshal([]byte(n.Get("/events")), &list); err != nil {
		return err.Error()
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == pod {
			text += e.Reason + ": " + e.Message + "\n"
		}
	}
	return text
}

// entryOf returns the texts of a list's entries about a resource.
func entryOf(n *harness.Node, path, resource string) (text string) {
	var list []map[string]any
	if err := json.Unmarshal([]byte(n.Get(path)), &list); err != nil {
		return err.Error()
	}
	for _, e := range list {
		if e["resource"] == resource || e["Name"] == resource {
			text += fmt.Sprintln(e)
		}
	}
	return text
}
