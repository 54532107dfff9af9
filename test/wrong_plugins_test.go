package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/test/harness"
)

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
		if e["resource"] == resource || e["name"] == resource {
			text += fmt.Sprintln(e)
		}
	}
	return text
}
