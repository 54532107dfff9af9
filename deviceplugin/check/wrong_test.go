package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// mistake is a fault of a plugin, with the check that it fails.
type mistake struct {
	name, check string
	make        func(p *plugin)
	// says is part of what happened.
	says string
	// patience is short if the plugin keeps the check waiting anyway.
	patience time.Duration
}

const hangs = 8 * time.Second

var mistakes = slices.Concat(ordinaryMistakes, answerMistakes, lifecycleMistakes)

var ordinaryMistakes = []mistake{
	{"another version", "version", func(p *plugin) {
		p.request = func(_ string, r *v1beta1.RegisterRequest) { r.Version = "v1alpha" }
	}, `"v1alpha" is not supported`, 0},
	{"a name without a domain", "resource-name", func(p *plugin) {
		p.request = func(_ string, r *v1beta1.RegisterRequest) { r.ResourceName = "gpu" }
	}, `the ResourceName "gpu" is invalid`, 0},
	{"a path as the endpoint", "endpoint", func(p *plugin) {
		p.request = func(dir string, r *v1beta1.RegisterRequest) { r.Endpoint = dir + "/p.sock" }
	}, "without a path", 0},
	{"registers before it serves", "serves-first", func(p *plugin) { p.late = true },
		"failed to dial device plugin", hangs},
	{"serves nowhere", reachable, func(p *plugin) { p.nowhere = true }, "p.sock", hangs},
	{"options fail", optionsKnown, func(p *plugin) { p.optionsErr = errors.New("no") }, "no", 0},
	{"options are not implemented", optionsKnown, func(p *plugin) {
		p.optionsErr = status.Error(codes.Unimplemented, "unknown method")
	}, "UNIMPLEMENTED", 0},
	{"no list", firstList, func(p *plugin) {
		p.list = func(_ *served, _ int, to lister) error {
			<-to.Context().Done()
			return nil
		}
	}, "no list", hangs},
	{"a device without an id", usableIDs, func(p *plugin) {
		p.devices = append(p.devices, &v1beta1.Device{Health: v1beta1.Healthy})
	}, "1 without an id", 0},
	{"an id twice", "unique-ids", func(p *plugin) { p.devices = append(p.devices, p.devices[1]) },
		"1 were listed more than once and count once: gpu-1", 0},
	{"health without capitals", "health-words", func(p *plugin) { p.devices[1].Health = "healthy" },
		`"healthy": gpu-1`, 0},
	{"a node that is not there", "numa-nodes", func(p *plugin) {
		p.devices[1].Topology.Nodes[0].ID = -1
	}, "such as -1: gpu-1", 0},
	{"an id of two lines", usableIDs, func(p *plugin) { p.devices[1].ID = "gpu\n1" },
		`"gpu\n1"`, 0},
	{"a list that is too long", "list-size", func(p *plugin) {
		for i := range 1100 {
			p.devices = append(p.devices, &v1beta1.Device{
				ID: fmt.Sprint("x", i, strings.Repeat("x", 4000)), Health: v1beta1.Unhealthy,
			})
		}
	}, "bytes", 0},
	{"ends its stream", streamStays, func(p *plugin) {
		p.list = func(_ *served, _ int, to lister) error {
			return to.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices})
		}
	}, "it ended its ListAndWatch stream", 0},
	{"a question is no release", hearsReleased, func(p *plugin) {
		p.released = func(_ *served, ids []string) error { return releasesNothing(ids) }
	}, "to the question", 0},
	{"releases once", hearsReleased, func(p *plugin) {
		p.released = func(s *served, ids []string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, id := range ids {
				if s.account["released"] == id {
					return fmt.Errorf("%s is free already", id)
				}
				s.account["released"] = id
			}
			return nil
		}
	}, "the second time", 0},
	{"releases what it lists", hearsReleased, func(p *plugin) {
		p.released = func(s *served, ids []string) error {
			for _, id := range ids {
				if !strings.HasPrefix(id, "gpu-") {
					return fmt.Errorf("there is no %s", id)
				}
			}
			return nil
		}
	}, "of a device that it does not list", 0},
	{"Allocate fails", allocates, func(p *plugin) {
		p.allocate = func(context.Context, *served, []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			return nil, errors.New("no such file")
		}
	}, "no such file", 0},
	{"an answer for nobody", allocates, func(p *plugin) {
		p.answers = func(a *v1beta1.AllocateResponse) { a.ContainerResponses = nil }
	}, "no containers return", 0},
	{"Allocate hangs", allocates, func(p *plugin) {
		p.allocate = func(ctx context.Context, _ *served, _ []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, "was not answered within its deadline", hangs},
	{"allocated once only", allocateAgain, func(p *plugin) { p.allocate = once }, "in use", 0},
	{"allocated in one set only", allocateReused, func(p *plugin) { p.allocate = inOneSet },
		"belongs to", 0},
	{"a relative path", "answer", func(p *plugin) {
		p.answers = func(a *v1beta1.AllocateResponse) {
			for _, r := range a.GetContainerResponses() {
				r.Devices = []*v1beta1.DeviceSpec{{
					HostPath: "dev/null", ContainerPath: "/dev/null", Permissions: "rw",
				}}
			}
		}
	}, `"dev/null"`, 0},
	{"few at once", "allocate-all", func(p *plugin) {
		p.allocate = func(ctx context.Context, s *served, ids []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			if len(ids) > 2 {
				return nil, errors.New("too many")
			}
			return plain(ctx, s, ids)
		}
	}, "too many", 0},
	{"answers for the first only", "several-devices", func(p *plugin) {
		p.allocate = func(ctx context.Context, s *served, ids []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			return plain(ctx, s, ids[:min(1, len(ids))])
		}
	}, "as for gpu-0 alone", 0},
	{"all at one place", "several-devices", func(p *plugin) { p.allocate = atOnePlace },
		`two devices have the container path "/dev/gpu"`, 0},
	{"locks each id", "repeated-id", func(p *plugin) {
		p.allocate = func(ctx context.Context, s *served, ids []string) (
			*v1beta1.ContainerAllocateResponse, error) {
			if len(ids) == 2 && ids[0] == ids[1] {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return plain(ctx, s, ids)
		}
	}, "no answer", hangs},
	{"one answer for all", "two-containers", func(p *plugin) {
		p.answers = func(a *v1beta1.AllocateResponse) {
			a.ContainerResponses = a.GetContainerResponses()[:1]
		}
	}, "for 1", 0},
	{"answers in another order", "two-containers", func(p *plugin) {
		p.answers = func(a *v1beta1.AllocateResponse) { slices.Reverse(a.ContainerResponses) }
	}, "and alone", 0},
	{"calls share a field", "parallel", func(p *plugin) { p.allocate = sharing }, "and alone", 0},
	{"keeps its lock when a call is cancelled", "cancelled", func(p *plugin) {
		p.allocate = holding
	}, "DeadlineExceeded", hangs},
	{"prefers nothing", prefers, func(p *plugin) {
		p.prefer = func([]string, []string, int) ([]string, error) {
			return nil, status.Error(codes.Unimplemented, "no")
		}
	}, "Unimplemented", 0},
	{"prefers what is not on offer", preferOffered, func(p *plugin) {
		p.prefer = func(available, must []string, size int) ([]string, error) {
			return firsts([]string{"gpu-1", "gpu-0", "gpu-2", "gpu-3"}, must, size)
		}
	}, "gpu-1", 0},
	{"prefers a device twice", preferOnce, func(p *plugin) {
		p.prefer = func(available, must []string, size int) ([]string, error) {
			ids, _ := firsts(available, must, size)
			return append(ids, ids[0]), nil
		}
	}, "more than once", 0},
	{"forgets the certain ones", preferWithMusts, func(p *plugin) {
		p.prefer = func(available, _ []string, size int) ([]string, error) {
			return firsts(available, nil, size)
		}
	}, "certain", 0},
	{"prefers too few", "prefer-size", func(p *plugin) {
		p.prefer = func(available, must []string, size int) ([]string, error) {
			return firsts(available, must, size-1)
		}
	}, "where", 0},
	{"does not prepare", "pre-start", func(p *plugin) {
		p.preStart = func(int) error { return errors.New("no reset") }
	}, "no reset", 0},
	{"prepares once", "pre-start-again", func(p *plugin) {
		p.preStart = func(n int) error {
			if n > 2 {
				return errors.New("was reset")
			}
			return nil
		}
	}, "was reset", 0},
	{"does not tell of sick devices", "unhealthy", func(p *plugin) {
		p.deaf = func(_, is []*v1beta1.Device) bool { return is[0].GetHealth() != v1beta1.Healthy }
	}, "no list came", hangs},
	{"lists and does not tell", "unhealthy", func(p *plugin) { p.list = listSame },
		"lists came, and these still counted as healthy: gpu-0", hangs},
	{"prefers too late", prefers, func(p *plugin) {
		p.prefer = func(available, must []string, size int) ([]string, error) {
			time.Sleep(devicemanager.DefaultDeadlines().Preferred + 100*time.Millisecond)
			return firsts(available, must, size)
		}
	}, "it never uses one", 0},
	{"lists what has changed only", "unhealthy", func(p *plugin) { p.list = listChanged },
		"are not in the list any more", 0},
	{"sick for ever", "recovers", func(p *plugin) {
		p.deaf = func(was, is []*v1beta1.Device) bool {
			return was[0].GetHealth() != v1beta1.Healthy && is[0].GetHealth() == v1beta1.Healthy
		}
	}, "no list came", hangs},
	{"does not tell of lost devices", "vanishes", func(p *plugin) {
		p.deaf = func(was, is []*v1beta1.Device) bool { return len(is) < len(was) }
	}, "no list came", hangs},
	{"lost for ever", "returns", func(p *plugin) {
		p.deaf = func(was, is []*v1beta1.Device) bool {
			return len(is) == len(was)+1
		}
	}, "not back: gpu-0", hangs},
	{"slow with many", "many", func(p *plugin) {
		p.prefer = func(available, must []string, size int) ([]string, error) {
			if len(available) > 1000 {
				time.Sleep(12 * time.Second) // more than the check's patience
			}
			return firsts(available, must, size)
		}
	}, "DeadlineExceeded", 0},
	{"registers once", registersAgain, func(p *plugin) { p.sessions = 1 }, "nothing came", hangs},
	{"lists on changes only", "lists-again", func(p *plugin) {
		p.list = func(s *served, stream int, to lister) error {
			if stream > 1 {
				<-to.Context().Done()
				return nil
			}
			return s.follow(to)
		}
	}, "p.sock", hangs},
	{"gives up after some restarts", "restart-in-calls", func(p *plugin) { p.sessions = 3 },
		"did not come back", hangs},
	{"tells its first stream only", "unhealthy-after-restart", func(p *plugin) {
		p.list = func(s *served, stream int, to lister) error {
			if stream == 1 {
				return s.follow(to)
			}
			devices, _ := s.state()
			if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			<-to.Context().Done()
			return nil
		}
	}, "no list came", hangs},
	{"leaves its socket in the registry", "socket-gone", func(p *plugin) {
		p.registry, p.keep = true, true
	}, "p.sock", 0},
	{"does not want to know", "registry-notice", func(p *plugin) {
		p.registry, p.notice = true, errors.New("what of it")
	}, "what of it", 0},
	{"another version in the registry", "version", func(p *plugin) {
		p.registry = true
		p.info = func(i *registerapi.PluginInfo) { i.SupportedVersions = []string{"v1"} }
	}, "not among plugin supported versions", 0},
	{"a relative path in the registry", "endpoint", func(p *plugin) {
		p.registry = true
		p.info = func(i *registerapi.PluginInfo) { i.Endpoint = "p.sock" }
	}, "give the path", 0},
}

// answering makes a plugin answer Allocate with this.
func answering(a *v1beta1.ContainerAllocateResponse) func(p *plugin) {
	return func(p *plugin) {
		p.answers = func(all *v1beta1.AllocateResponse) {
			for i := range all.GetContainerResponses() {
				all.ContainerResponses[i] = proto.CloneOf(a)
			}
		}
	}
}

// answerMistakes are what container runtimes refuse.
var answerMistakes = []mistake{
	{"a file as a device", "answer", answering(&v1beta1.ContainerAllocateResponse{
		Devices: []*v1beta1.DeviceSpec{{
			HostPath: "/etc/hosts", ContainerPath: "/dev/x", Permissions: "rw",
		}},
	}), `for gpu-0: "/etc/hosts" is no device node`, 0},
	{"a CDI device without a file", "answer", answering(&v1beta1.ContainerAllocateResponse{
		CdiDevices: []*v1beta1.CDIDevice{{Name: "example.com/numalet-none=0"}},
	}), "has example.com/numalet-none=0", 0},
	{"a NUL in a variable", "answer", answering(&v1beta1.ContainerAllocateResponse{
		Envs: map[string]string{"A": "b\x00"},
	}), `the variable "A" has a NUL`, 0},
	{"a mount on the root", "answer", answering(&v1beta1.ContainerAllocateResponse{
		Mounts: []*v1beta1.Mount{{HostPath: "/tmp", ContainerPath: "/./"}},
	}), "takes the place of the container's image", 0},
}

// late answers after the agent has given up.
func late() { time.Sleep(devicemanager.QuestionDeadline + 200*time.Millisecond) }

// lifecycleMistakes are in answers of the second service.
var lifecycleMistakes = []mistake{
	{"slow to say whether it has reasons", hasReasons, func(p *plugin) {
		p.reasons = func([]string) map[string]string {
			late()
			return nil
		}
	}, "whether it serves that: the answer came after", 0},
	{"slow to give reasons", hasReasons, func(p *plugin) {
		p.reasons = func(ids []string) map[string]string {
			if len(ids) > 0 {
				late()
			}
			return nil
		}
	}, "asked about devices: the answer came after", 0},
	{"reasons of others", hasReasons, func(p *plugin) {
		p.reasons = func([]string) map[string]string { return map[string]string{"gpu-9": "hot"} }
	}, `"gpu-9"`, 0},
	{"a place that is none", hasPlaces, func(p *plugin) {
		p.places = func([]string) map[string]string { return map[string]string{"gpu-1": "slot 3"} }
	}, `the place of "gpu-1" is "slot 3"`, 0},
	{"places of others", hasPlaces, func(p *plugin) {
		p.places = func([]string) map[string]string {
			return map[string]string{"gpu-9": "0000:3b:00.0"}
		}
	}, `"gpu-9"`, 0},
}

// listSame sends the first list on each change.
func listSame(s *served, _ int, to lister) error {
	for {
		_, changed := s.state()
		if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: s.plugin.devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-to.Context().Done():
			return nil
		}
	}
}

// once allocates each device once.
func once(ctx context.Context, s *served, ids []string) (*v1beta1.ContainerAllocateResponse,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.account[id] != "" {
			return nil, fmt.Errorf("%s is in use", id)
		}
		s.account[id] = id
	}
	return &v1beta1.ContainerAllocateResponse{}, nil
}

// atOnePlace gives every device the same path in the container.
func atOnePlace(ctx context.Context, s *served, ids []string) (*v1beta1.ContainerAllocateResponse,
	error) {
	a, err := plain(ctx, s, ids)
	for range len(ids) {
		if err == nil {
			a.Devices = append(a.Devices, &v1beta1.DeviceSpec{
				HostPath: "/dev/null", ContainerPath: "/dev/gpu", Permissions: "rw",
			})
		}
	}
	return a, err
}

// listChanged sends all devices first, later only changed ones.
func listChanged(s *served, _ int, to lister) error {
	var last []*v1beta1.Device
	for {
		devices, changed := s.state()
		send := slices.DeleteFunc(slices.Clone(devices), func(d *v1beta1.Device) bool {
			return slices.Contains(last, d)
		})
		if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: send}); err != nil {
			return err
		}
		last = devices
		select {
		case <-changed:
		case <-to.Context().Done():
			return nil
		}
	}
}

// inOneSet allocates each device only with the devices of its first allocation.
func inOneSet(_ context.Context, s *served, ids []string) (*v1beta1.ContainerAllocateResponse,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := strings.Join(ids, ",")
	for _, id := range ids {
		if s.account[id] != "" && s.account[id] != set {
			return nil, fmt.Errorf("%s belongs to %s", id, s.account[id])
		}
		s.account[id] = set
	}
	return &v1beta1.ContainerAllocateResponse{}, nil
}

func releasesNothing(ids []string) error {
	if len(ids) == 0 {
		return errors.New("there are no devices in it")
	}
	return nil
}

// sharing stores the ids of a call where other calls find them.
func sharing(ctx context.Context, s *served, ids []string) (*v1beta1.ContainerAllocateResponse,
	error) {
	if _, err := plain(ctx, s, ids); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.shared = strings.Join(ids, ",")
	s.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"GPUS": s.shared}}, nil
}

// holding works one call at a time, and never again after a cancelled one.
func holding(ctx context.Context, s *served, ids []string) (*v1beta1.ContainerAllocateResponse,
	error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	<-s.busy
	return plain(ctx, s, ids)
}

// atOnce is the number of plugins checked in parallel: they mostly wait.
const atOnce = 16

// Each plugin with one mistake fails the check for it, and no other.
func TestMistakes(t *testing.T) {
	reports := make([]Report, len(mistakes))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, m := range mistakes {
		group.Go(func() error {
			p := good()
			m.make(p)
			levers := p.levers()
			if m.check != "many" {
				delete(levers, Multiply) // it takes long
			}
			var err error
			reports[i], err = Run(t.Context(), Config{
				Run: p.run, Levers: levers, Patience: m.patience, watch: time.Second,
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, m := range mistakes {
		t.Run(m.name, func(t *testing.T) { wantFailed(t, reports[i], m.check, m.says) })
	}
}

// wantFailed checks that exactly one check failed and that it has all its words.
func wantFailed(t *testing.T, report Report, check, says string) {
	t.Helper()
	failures := resultsOf(report, Failed)
	for _, r := range failures {
		if r.Name != check {
			t.Errorf("it fails %s: %s", r.Name, r.Happened)
		} else if !strings.Contains(r.Happened, says) {
			t.Errorf("%s says %q, want %q in it", check, r.Happened, says)
		}
	}
	if !slices.ContainsFunc(failures, func(r Result) bool { return r.Name == check }) {
		t.Errorf("it does not fail %s; it says %+v", check, find(report, check))
	}
}

func resultsOf(report Report, v Verdict) []Result {
	return slices.DeleteFunc(slices.Clone(report.Results),
		func(r Result) bool { return r.Verdict != v })
}

func find(report Report, check string) Result {
	at := slices.IndexFunc(report.Results, func(r Result) bool { return r.Name == check })
	if at < 0 {
		return Result{}
	}
	return report.Results[at]
}
