package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// authored is a plugin whose answers a test writes.
type authored struct {
	v1beta1.UnimplementedDevicePluginServer
	lists    chan []*v1beta1.Device
	allocate func() (*v1beta1.AllocateResponse, error)
}

func (a *authored) ListAndWatch(_ *v1beta1.Empty,
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		select {
		case devices := <-a.lists:
			if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (a *authored) Allocate(context.Context, *v1beta1.AllocateRequest) (
	*v1beta1.AllocateResponse, error) {
	return a.allocate()
}

// author serves the plugin on a socket in the directory.
func (r *rig) author(name string, a *authored) {
	r.t.Helper()
	r.authorWith(name, a, func(*grpc.Server) {})
}

// authorWith also registers other services of the plugin.
func (r *rig) authorWith(name string, a *authored, more func(*grpc.Server)) {
	r.t.Helper()
	l, err := net.Listen("unix", filepath.Join(r.dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, a)
	more(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	r.t.Cleanup(func() {
		server.Stop()
		<-done
	})
}

func (r *rig) register(name, resource string) error {
	r.t.Helper()
	return registerWith(r.t, r.dir, v1beta1.Version, name, resource)
}

// joins has a plugin of that author serve its socket, and register.
func (r *rig) joins(name string, a *authored) {
	r.t.Helper()
	r.author(name, a)
	if err := r.register(name, gpu); err != nil {
		r.t.Fatal(err)
	}
}

// lists returns lists of n devices.
func lists(n ...int) chan []*v1beta1.Device {
	out := make(chan []*v1beta1.Device, 8)
	for _, n := range n {
		out <- devices(n)
	}
	return out
}

func devices(n int) (out []*v1beta1.Device) {
	for i := range n {
		out = append(out, &v1beta1.Device{ID: fmt.Sprint("gpu-", i), Health: v1beta1.Healthy})
	}
	return out
}

func TestAllocateAnswersBeyondBounds(t *testing.T) {
	r := newRig(t, Config{})
	plugin := &authored{lists: lists(1)}
	r.joins("p.sock", plugin)
	r.untilConnected(gpu)
	envs := func(n, size int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint("E", i)] = strings.Repeat("x", size)
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		answers []*v1beta1.ContainerAllocateResponse
		want    string
	}{
		{"as much as there may be", []*v1beta1.ContainerAllocateResponse{
			{Envs: envs(9_999, 80), CdiDevices: []*v1beta1.CDIDevice{{Name: "a"}}}}, ""},
		{"too many", []*v1beta1.ContainerAllocateResponse{
			{Envs: envs(10_000, 8), CdiDevices: []*v1beta1.CDIDevice{{Name: "a"}}}},
			"its answer to Allocate has 10001 variables, mounts, devices, annotations and CDI " +
				"devices, and may have 10000: say less for each container"},
		{"too long", []*v1beta1.ContainerAllocateResponse{{Envs: envs(2, 600_000)}},
			"its answer to Allocate has more than 1048576 bytes: say less for each container"},
	} {
		plugin.allocate = func() (*v1beta1.AllocateResponse, error) {
			return &v1beta1.AllocateResponse{ContainerResponses: tc.answers}, nil
		}
		_, err := r.Allocate(t.Context(), gpu, []string{"gpu-0"})
		var bad *AnswerError
		if tc.want == "" && err != nil || tc.want != "" &&
			(!errors.As(err, &bad) || err.Error() != tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// An error of a plugin is cut to one line; the log has the whole.
func TestLongErrorIsCut(t *testing.T) {
	r := newRig(t, Config{})
	long := strings.Repeat("no such device\n", 75_000)
	plugin := &authored{lists: lists(1)}
	plugin.allocate = func() (*v1beta1.AllocateResponse, error) {
		return nil, status.Error(codes.FailedPrecondition, long)
	}
	r.joins("p.sock", plugin)
	r.untilConnected(gpu)
	for verbosity, wholes := range map[int]int{3: 0, 4: 1} {
		log := recorder(verbosity)
		_, err := r.Allocate(klog.NewContext(t.Context(), log.logger), gpu, []string{"gpu-0"})
		if status.Code(err) != codes.FailedPrecondition || len(err.Error()) > 1024 ||
			strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "no such device no such device") ||
			!strings.Contains(err.Error(), "(1125000 bytes in all)") {
			t.Errorf("the error is %v", err)
		}
		if n := strings.Count(log.text(), "What the other side says in full"); n != wholes {
			t.Errorf("at V(%d) the whole is logged %d times, want %d", verbosity, n, wholes)
		}
	}
}

// recorded is a log that a test reads.
type recorded struct {
	logger klog.Logger
	text   func() string
}

func recorder(verbosity int) recorded {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(
		ktesting.Verbosity(verbosity), ktesting.BufferLogs(true)))
	return recorded{logger, func() string {
		return logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	}}
}

// The complaint of a plugin that answers for more containers than it was asked about.
func TestTwoAnswersForOneContainer(t *testing.T) {
	r := newRig(t, Config{})
	plugin := &authored{lists: lists(1)}
	plugin.allocate = func() (*v1beta1.AllocateResponse, error) {
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{
			{Envs: map[string]string{"A": "first"}}, {Envs: map[string]string{"A": "second"}},
		}}, nil
	}
	r.joins("p.sock", plugin)
	r.untilConnected(gpu)
	log := recorder(0)
	answer, err := r.Allocate(klog.NewContext(t.Context(), log.logger), gpu, []string{"gpu-0"})
	if err != nil || answer.GetEnvs()["A"] != "first" {
		t.Errorf("the answer is %v, %v", answer, err)
	}
	if text := log.text(); !strings.Contains(text, "the first answer counts") ||
		!strings.Contains(text, "answers=2") {
		t.Errorf("the log has %q", text)
	}
}

// The error of a call during which the plugin dies names the call and its deadline; the plugin may
// return.
func TestPluginDiesInACall(t *testing.T) {
	r := newRig(t, Config{})
	plugin := &authored{lists: lists(1)}
	var dying sync.Once
	l, err := net.Listen("unix", filepath.Join(r.dir, "p.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	plugin.allocate = func() (*v1beta1.AllocateResponse, error) {
		dying.Do(func() { go server.Stop() })
		<-t.Context().Done() // the process is gone
		return nil, errors.New("the test is over")
	}
	v1beta1.RegisterDevicePluginServer(server, plugin)
	go func() { _ = server.Serve(l) }()
	if err := r.register("p.sock", gpu); err != nil {
		t.Fatal(err)
	}
	r.untilConnected(gpu)
	_, err = r.Allocate(t.Context(), gpu, []string{"gpu-0"})
	var unanswered *CallError
	const want = "the connection to the plugin was lost while Allocate was under way (its " +
		"deadline is 30s), as when the plugin panics or is killed: "
	if !errors.As(err, &unanswered) || !strings.HasPrefix(err.Error(), want) ||
		status.Code(err) != codes.Unavailable {
		t.Errorf("the error is %v", err)
	}
}

// A plugin that answers Unavailable has answered.
func TestPluginSaysThatItIsUnavailable(t *testing.T) {
	r := newRig(t, Config{})
	plugin := &authored{lists: lists(1)}
	plugin.allocate = func() (*v1beta1.AllocateResponse, error) {
		return nil, status.Error(codes.Unavailable, "just a moment")
	}
	r.joins("p.sock", plugin)
	r.untilConnected(gpu)
	_, err := r.Allocate(t.Context(), gpu, []string{"gpu-0"})
	const want = "rpc error: code = Unavailable desc = just a moment"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
}

// A plugin whose first list is empty has listed nothing yet: the devices of before stay.
func TestEmptyFirstList(t *testing.T) {
	r := newRig(t, Config{Graces: Graces{
		Capacity: time.Hour, Allocatable: time.Hour, Empty: time.Hour,
	}})
	plugin := &authored{lists: lists(0)}
	r.joins("p.sock", plugin)
	const yet = "the plugin on p.sock has listed no devices yet"
	inv := r.until("the empty list", func(inv Inventory) bool {
		return inv.Resources[gpu].Problem == yet
	})
	if res := inv.Resources[gpu]; res.Connected || !res.Arriving {
		t.Errorf("after an empty list the resource is %+v", res)
	}
	plugin.lists <- devices(3)
	if res := r.untilConnected(gpu); len(res.Devices) != 3 || res.Arriving {
		t.Errorf("after the real list the resource is %+v", res)
	}
	// an update of the plugin, whose first list is empty too
	next := &authored{lists: lists(0)}
	r.joins("q.sock", next)
	eventually(t, "the new one's list to be read", func() bool { return len(next.lists) == 0 })
	if res := r.Inventory().Resources[gpu]; !res.Connected || res.Capacity != 3 {
		t.Errorf("beside a newcomer that has listed nothing yet the resource is %+v", res)
	}
	plugin.lists <- nil // a later empty list counts
	r.until("the list to count", func(inv Inventory) bool {
		return inv.Resources[gpu].Connected && inv.Resources[gpu].Capacity == 0
	})
}

func TestEmptyListAfterItsGrace(t *testing.T) {
	r := newRig(t, Config{Graces: Graces{Capacity: time.Hour, Empty: time.Nanosecond}})
	r.joins("p.sock", &authored{lists: lists(0)})
	if res := r.untilConnected(gpu); len(res.Devices) != 0 || res.Arriving {
		t.Errorf("the resource is %+v", res)
	}
}

func TestRegisteredBeforeServing(t *testing.T) {
	r := newRig(t, Config{})
	if err := r.register("p.sock", gpu); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin to be dialled in vain", func() bool {
		l := r.current.Load().links[gpu]
		return l != nil && l.conn.DialError() != nil
	})
	r.author("p.sock", &authored{lists: lists(1)})
	const want = "it registered before it served its socket (dial unix "
	if res := r.untilConnected(gpu); !strings.HasPrefix(res.Early, want) ||
		!strings.Contains(res.Early, "--device-plugin-strict-registration") {
		t.Errorf("is said: %q", res.Early)
	}
	r.joins("q.sock", &authored{lists: lists(2)})
	inv := r.until("the newer plugin", func(inv Inventory) bool {
		return inv.Resources[gpu].Capacity == 2
	})
	if early := inv.Resources[gpu].Early; early != "" {
		t.Errorf("of a plugin that serves first is said: %q", early)
	}
}

func TestStrictRegistration(t *testing.T) {
	r := newRig(t, Config{Strict: true, Deadlines: Deadlines{Dial: 300 * time.Millisecond}})
	err := r.register("p.sock", gpu)
	const want = "failed to dial device plugin: no answer in 300ms: dial unix "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Register says %v", err)
	}
	inv := r.until("the refusal", func(inv Inventory) bool { return inv.Refused[gpu] != "" })
	if _, known := inv.Resources[gpu]; known || !strings.HasPrefix(inv.Refused[gpu], want) {
		t.Errorf("the inventory is %+v", inv)
	}
	r.joins("p.sock", &authored{lists: lists(1)})
	r.untilConnected(gpu)
	if inv := r.Inventory(); inv.Refused[gpu] != "" {
		t.Errorf("the refusal is still told: %q", inv.Refused[gpu])
	}
}

// The memory of refused plugins is bounded.
func TestRefusalsAreBounded(t *testing.T) {
	var d declined
	for i := range 1000 {
		d.add(fmt.Sprint("example.com/", i%100), "no")
	}
	if n := len(d.byResource()); n != mostDeclined || d.byResource()["example.com/99"] != "no" {
		t.Errorf("%d are remembered", n)
	}
	d.drop("example.com/99")
	if _, there := d.byResource()["example.com/99"]; there {
		t.Error("a refusal is not dropped")
	}
}

// hesitant is a plugin whose second service never answers a question.
type hesitant struct {
	lifecyclev1.UnimplementedLifecycleServer
}

func (hesitant) Reasons(ctx context.Context, _ *lifecyclev1.ReasonsRequest) (
	*lifecyclev1.ReasonsResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hesitant) Places(ctx context.Context, _ *lifecyclev1.PlacesRequest) (
	*lifecyclev1.PlacesResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A plugin that does not answer whether it has reasons and places lists its devices all the same.
func TestListDoesNotWaitForReasons(t *testing.T) {
	r := newRig(t, Config{Deadlines: Deadlines{Options: time.Hour, Lifecycle: time.Hour}})
	r.authorWith("p.sock", &authored{lists: lists(2)}, func(s *grpc.Server) {
		lifecyclev1.RegisterLifecycleServer(s, hesitant{})
	})
	if err := r.register("p.sock", gpu); err != nil {
		t.Fatal(err)
	}
	if res := r.untilConnected(gpu); len(res.Devices) != 2 || res.Options.Reasons || res.Options.Places {
		t.Errorf("%+v", res)
	}
}
