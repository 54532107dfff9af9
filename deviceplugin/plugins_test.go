package deviceplugin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/sim"
	"github.com/numalet/numalet/topology"
)

func TestRegisterListAllocate(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	r := newRig(t, Config{Registry: registry})
	plugin := r.plugin(sim.Config{Resource: gpu, PreStart: true, Answer: sim.Answer{
		DevicePaths: []string{"/dev/null"}, Mounts: []string{"/tmp:/host:ro"},
		Annotations: map[string]string{"a": "b"}, CDIKind: "example.com/gpu",
	}})
	res := r.untilConnected(gpu)
	want := Resource{Name: gpu, Connected: true, Preferred: true, PreStart: true}
	for i := range 8 {
		want.Devices = append(want.Devices, Device{
			ID: fmt.Sprintf("gpu-%d", i), Healthy: true, Nodes: topology.NewNodeSet(topology.NodeID(i / 2)),
		})
	}
	if diff := cmp.Diff(want, res, cmp.Comparer(func(a, b topology.NodeSet) bool { return a == b })); diff != "" {
		t.Errorf("resource, -want +got:\n%s", diff)
	}

	ids, err := r.Preferred(t.Context(), PreferredRequest{Resource: gpu, Available: idsOf(res.Devices), Size: 2})
	if err != nil || !slices.Equal(ids, []string{"gpu-0", "gpu-1"}) {
		t.Errorf("preferred %q, %v", ids, err)
	}
	resp, err := r.Allocate(t.Context(), gpu, ids)
	if err != nil {
		t.Fatal(err)
	}
	wantResp := &v1beta1.ContainerAllocateResponse{
		Envs:        map[string]string{"SIM_GPU_VISIBLE_DEVICES": "gpu-0,gpu-1"},
		Devices:     []*v1beta1.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: "rw"}},
		Mounts:      []*v1beta1.Mount{{HostPath: "/tmp", ContainerPath: "/host", ReadOnly: true}},
		Annotations: map[string]string{"a": "b"},
		CdiDevices:  []*v1beta1.CDIDevice{{Name: "example.com/gpu=gpu-0"}, {Name: "example.com/gpu=gpu-1"}},
	}
	if diff := cmp.Diff(wantResp, resp, protocmp.Transform()); diff != "" {
		t.Errorf("answer, -want +got:\n%s", diff)
	}
	if err := r.PreStart(t.Context(), gpu, ids); err != nil {
		t.Error(err)
	}
	for _, rpc := range []sim.RPC{sim.Register, sim.Options, sim.List, sim.Preferred, sim.Allocate, sim.PreStart} {
		if n := plugin.calls(rpc); n != 1 {
			t.Errorf("%s was called %d times", rpc, n)
		}
	}
	count, err := testutil.GetCounterMetricValue(r.metrics.registrations.WithLabelValues(gpu))
	if err != nil || count != 1 {
		t.Errorf("registrations: %v, %v", count, err)
	}
	if n, err := testutil.GetHistogramMetricCount(r.metrics.allocations.WithLabelValues(gpu)); err != nil || n != 1 {
		t.Errorf("allocations: %v, %v", n, err)
	}
}

func TestHealthAndDevicesChange(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	before := r.untilConnected(gpu)

	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-3", "gpu-4"))
	inv := r.until("six healthy devices", func(inv Inventory) bool {
		return healthy(inv.Resources[gpu].Devices) == 6
	})
	if d := inv.Resources[gpu].Devices; d[3].Healthy || d[4].Healthy || len(d) != 8 {
		t.Errorf("devices are %+v", d)
	}
	if healthy(before.Devices) != 8 {
		t.Error("the older snapshot was written to")
	}
	plugin.must(plugin.Add(t.Context(), sim.Device{ID: "gpu-10", Healthy: true}, sim.Device{ID: "gpu-9", Healthy: true}))
	plugin.must(plugin.Remove(t.Context(), "gpu-0"))
	inv = r.until("gpu-0 to leave", func(inv Inventory) bool { return inv.Resources[gpu].Devices[0].ID != "gpu-0" })
	want := []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7", "gpu-9", "gpu-10"}
	if diff := cmp.Diff(want, idsOf(inv.Resources[gpu].Devices)); diff != "" {
		t.Errorf("ids, -want +got:\n%s", diff)
	}
}

// callers of the plugin's calls, by name.
func (r *rig) caller(rpc sim.RPC, resource string) error {
	var err error
	switch rpc {
	case sim.Preferred:
		_, err = r.Preferred(r.t.Context(), PreferredRequest{Resource: resource, Available: []string{"gpu-0"}, Size: 1})
	case sim.Allocate:
		_, err = r.Allocate(r.t.Context(), resource, []string{"gpu-0"})
	case sim.PreStart:
		err = r.PreStart(r.t.Context(), resource, []string{"gpu-0"})
	default:
		r.t.Fatalf("nobody calls %s", rpc)
	}
	return err
}

func TestHangingConnections(t *testing.T) {
	for rpc, tc := range map[sim.RPC]struct {
		deadlines Deadlines
		problem   string
	}{
		sim.Serve:   {Deadlines{Dial: 200 * time.Millisecond}, "failed to dial device plugin: no answer in 200ms: dial unix"},
		sim.Options: {Deadlines{Options: 200 * time.Millisecond}, "GetDevicePluginOptions: rpc error: code = DeadlineExceeded"},
		sim.List:    {Deadlines{FirstList: 200 * time.Millisecond}, "ListAndWatch: no list of devices came in time (200ms)"},
	} {
		t.Run(string(rpc), func(t *testing.T) {
			r := newRig(t, Config{Deadlines: tc.deadlines})
			plugin := r.plugin(sim.Config{Resource: gpu, Faults: []sim.Fault{{RPC: rpc, Hang: true}}})
			inv := r.until("the deadline's problem", func(inv Inventory) bool {
				return strings.Contains(inv.Resources[gpu].Problem, tc.problem)
			})
			if res := inv.Resources[gpu]; res.Connected || len(res.Devices) > 0 {
				t.Errorf("a plugin that hangs is in the inventory as %+v", res)
			}
			var stopped *StoppedError
			if err := r.caller(sim.Allocate, gpu); !errors.As(err, &stopped) {
				t.Errorf("Allocate says %v", err)
			}
			plugin.must(plugin.ClearFaults(t.Context()))
			plugin.must(plugin.Restart(t.Context()))
			r.untilConnected(gpu)
		})
	}
}

func TestHangingCalls(t *testing.T) {
	for rpc, tc := range map[sim.RPC]struct {
		deadlines Deadlines
		problem   string
	}{
		sim.Preferred: {Deadlines{Preferred: 200 * time.Millisecond}, "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = DeadlineExceeded"},
		sim.Allocate:  {Deadlines{Allocate: 200 * time.Millisecond}, "rpc error: code = DeadlineExceeded"},
		sim.PreStart:  {Deadlines{PreStart: 200 * time.Millisecond}, "device plugin PreStartContainer rpc failed with err: rpc error: code = DeadlineExceeded"},
	} {
		t.Run(string(rpc), func(t *testing.T) {
			r := newRig(t, Config{Deadlines: tc.deadlines})
			hung := r.plugin(sim.Config{Resource: gpu, PreStart: true, Faults: []sim.Fault{{RPC: rpc, Hang: true}}})
			r.plugin(sim.Config{Resource: nic, PreStart: true})
			r.untilConnected(gpu)
			r.untilConnected(nic)
			answer := make(chan error, 1)
			go func() { answer <- r.caller(rpc, gpu) }()
			eventually(t, "the call to reach the plugin", func() bool { return hung.calls(rpc) == 1 })
			if err := r.caller(rpc, nic); err != nil {
				t.Errorf("beside a plugin that hangs, another one answers %v", err)
			}
			if err := <-answer; err == nil || !strings.HasPrefix(err.Error(), tc.problem) {
				t.Errorf("the call that hangs ended with %v", err)
			}
			hung.must(hung.ClearFaults(t.Context()))
			if err := r.caller(rpc, gpu); err != nil {
				t.Errorf("after it hung, the plugin answers %v", err)
			}
		})
	}
}

func TestFailingCalls(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu, PreStart: true})
	r.untilConnected(gpu)
	for rpc, want := range map[sim.RPC]string{
		sim.Preferred: "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Aborted desc = no",
		sim.Allocate:  "rpc error: code = Aborted desc = no",
		sim.PreStart:  "device plugin PreStartContainer rpc failed with err: rpc error: code = Aborted desc = no",
	} {
		plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: rpc, Code: "aborted", Message: "no", Count: 1}))
		if err := r.caller(rpc, gpu); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", rpc, err, want)
		}
		if err := r.caller(rpc, gpu); err != nil {
			t.Errorf("%s, once the fault is used up: %v", rpc, err)
		}
	}
	for rpc, want := range map[sim.RPC]string{
		sim.Preferred: "unknown Device Plugin example.com/other",
		sim.Allocate:  "unknown Device Plugin example.com/other",
		sim.PreStart:  "endpoint not found in cache for a registered resource: example.com/other",
	} {
		if err := r.caller(rpc, "example.com/other"); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", rpc, err, want)
		}
	}
}

func TestFailingConnections(t *testing.T) {
	for _, rpc := range []sim.RPC{sim.Options, sim.List} {
		r := newRig(t, Config{})
		plugin := r.plugin(sim.Config{Resource: gpu, Faults: []sim.Fault{
			{RPC: rpc, Code: "INTERNAL", Message: "broken", Count: 1},
		}})
		want := fmt.Sprintf("plugin on example.com_gpu.sock: %s: rpc error: code = Internal desc = broken", rpc)
		r.until("the problem", func(inv Inventory) bool { return inv.Resources[gpu].Problem == want })
		plugin.must(plugin.Restart(t.Context()))
		r.untilConnected(gpu)
	}
}

func TestLies(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	req := Request{Resource: r.untilConnected(gpu), N: 2, Hint: topology.Hint{Any: true}}
	for lie, want := range map[sim.Lie][]string{
		sim.Foreign: {"gpu-0", "gpu-1"}, sim.Few: {"gpu-0", "gpu-1"}, sim.Empty: {"gpu-0", "gpu-1"},
	} {
		plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.Preferred, Lie: lie}))
		ask, wanted := AdviceWanted(req)
		if !wanted {
			t.Fatal("no advice wanted")
		}
		var err error
		if req.Advice, err = r.Preferred(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		if got, err := Choose(req); err != nil || !slices.Equal(got, want) {
			t.Errorf("with advice %q the choice is %q, %v", req.Advice, got, err)
		}
	}
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.Allocate, Lie: sim.Empty}))
	err := r.caller(sim.Allocate, gpu)
	if err == nil || !strings.HasPrefix(err.Error(), "no containers return in allocation response") {
		t.Errorf("an empty answer gives %v", err)
	}
	for _, lie := range []sim.Lie{sim.Duplicate, sim.Nowhere} {
		before := r.Inventory().Resources[gpu].Devices
		plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Lie: lie}))
		plugin.must(plugin.SetHealth(t.Context(), lie != sim.Duplicate, "gpu-7"))
		inv := r.until("the lying list", func(inv Inventory) bool {
			return inv.Resources[gpu].Devices[7].Healthy == (lie != sim.Duplicate)
		})
		after := slices.Clone(inv.Resources[gpu].Devices)
		after[7].Healthy = before[7].Healthy
		if !slices.Equal(before, after) {
			t.Errorf("lie %s changed the devices to %+v", lie, after)
		}
	}
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Lie: sim.Empty}))
	inv := r.until("no device", func(inv Inventory) bool { return len(inv.Resources[gpu].Devices) == 0 })
	if !inv.Resources[gpu].Connected {
		t.Error("a plugin without devices is not connected")
	}
}

func TestCrashAndReturn(t *testing.T) {
	r := newRig(t, Config{})
	plugin := startPlugin(t, sim.Config{Resource: gpu, Dir: r.dir}, sim.ErrCrashed)
	r.untilConnected(gpu)
	plugin.must(plugin.Crash(t.Context()))
	res := r.untilDisconnected(gpu)
	if len(res.Devices) != 8 || healthy(res.Devices) != 0 || res.Problem == "" {
		t.Errorf("after a crash the resource is %+v", res)
	}
	want := "endpoint " + filepath.Join(r.dir, "example.com_gpu.sock") + " has been stopped"
	if err := r.caller(sim.PreStart, gpu); err == nil || err.Error() != want {
		t.Errorf("PreStart says %v, want %s", err, want)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "example.com_gpu.sock")); err != nil {
		t.Errorf("the crash took its socket along: %v", err)
	}
	r.plugin(sim.Config{Resource: gpu})
	if res := r.untilConnected(gpu); healthy(res.Devices) != 8 || res.Problem != "" {
		t.Errorf("after the return the resource is %+v", res)
	}
}

func TestGraceEnds(t *testing.T) {
	r := newRig(t, Config{DisconnectGrace: 100 * time.Millisecond, Known: []string{nic}})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	plugin.stop()
	r.until("both resources to be gone", func(inv Inventory) bool { return len(inv.Resources) == 0 })
}

func TestRestartOfThePlugin(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	for i := range 5 {
		plugin.must(plugin.Restart(t.Context()))
		eventually(t, "the plugin to be listed again", func() bool { return plugin.calls(sim.List) == i+2 })
		r.untilConnected(gpu)
	}
	if err := r.caller(sim.Allocate, gpu); err != nil {
		t.Error(err)
	}
}

func TestTakeover(t *testing.T) {
	r := newRig(t, Config{})
	older := r.plugin(sim.Config{Resource: gpu, Socket: "old.sock", Devices: spread(t, 4, "0")})
	r.untilConnected(gpu)
	newer := r.plugin(sim.Config{Resource: gpu, Socket: "new.sock", Faults: []sim.Fault{{RPC: sim.List, Hang: true}}})
	eventually(t, "the newer one to be asked", func() bool { return newer.calls(sim.List) == 1 })
	if res := r.Inventory().Resources[gpu]; !res.Connected || len(res.Devices) != 4 {
		t.Errorf("before the newer one has a list, the resource is %+v", res)
	}
	newer.must(newer.ClearFaults(t.Context()))
	r.until("the newer one to take over", func(inv Inventory) bool { return len(inv.Resources[gpu].Devices) == 8 })
	if err := r.caller(sim.Allocate, gpu); err != nil || newer.calls(sim.Allocate) != 1 {
		t.Errorf("the call went elsewhere (%v)", err)
	}
	version := r.Inventory().Version
	older.stop()
	inv := r.until("the older one's end to be seen", func(inv Inventory) bool { return inv.Version > version })
	if res := inv.Resources[gpu]; !res.Connected || healthy(res.Devices) != 8 {
		t.Errorf("the older one's end made the resource %+v", res)
	}
}

func TestStandby(t *testing.T) {
	r := newRig(t, Config{})
	r.plugin(sim.Config{Resource: gpu, Socket: "old.sock", Devices: spread(t, 4, "0")})
	r.untilConnected(gpu)
	newer := r.plugin(sim.Config{Resource: gpu, Socket: "new.sock"})
	r.until("the newer one to take over", func(inv Inventory) bool { return len(inv.Resources[gpu].Devices) == 8 })
	newer.stop()
	inv := r.until("the older one to take back", func(inv Inventory) bool { return len(inv.Resources[gpu].Devices) == 4 })
	if res := inv.Resources[gpu]; !res.Connected || healthy(res.Devices) != 4 {
		t.Errorf("the resource is %+v", res)
	}
}

func TestCallOutlivesItsLink(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu, Faults: []sim.Fault{{RPC: sim.Allocate, Hang: true}}})
	r.untilConnected(gpu)
	answer := make(chan error, 1)
	go func() { answer <- r.caller(sim.Allocate, gpu) }()
	eventually(t, "the call to reach the plugin", func() bool { return plugin.calls(sim.Allocate) == 1 })
	// The same socket again, from a plugin that has not ended.
	if err := registerWith(t, r.dir, v1beta1.Version, "example.com_gpu.sock", gpu); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin to be listed again", func() bool { return plugin.calls(sim.List) == 2 })
	plugin.must(plugin.ClearFaults(t.Context()))
	if err := <-answer; err != nil {
		t.Errorf("the registration cut off a call: %v", err)
	}
}

func TestSocketFileRemoved(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	if err := os.Remove(filepath.Join(r.dir, "example.com_gpu.sock")); err != nil {
		t.Fatal(err)
	}
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-0"))
	r.until("the list to come still", func(inv Inventory) bool { return healthy(inv.Resources[gpu].Devices) == 7 })
	if err := r.caller(sim.Preferred, gpu); err != nil {
		t.Error(err)
	}
}

func TestListOfManyMegabytes(t *testing.T) {
	nodes := topology.NewNodeSet(0, 1, 2, 3)
	devices, err := sim.Spread(strings.Repeat("x", 64), 60_000, nodes, sim.Blocked)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu, Devices: devices})
	if got := len(r.untilConnected(gpu).Devices); got != len(devices) {
		t.Errorf("%d devices", got)
	}
	plugin.must(plugin.SetHealth(t.Context(), false, devices[17].ID))
	r.until("one unhealthy device", func(inv Inventory) bool {
		return !inv.Resources[gpu].Devices[17].Healthy
	})
}

func TestPluginServesLate(t *testing.T) {
	r := newRig(t, Config{})
	r.plugin(sim.Config{Resource: gpu, Faults: []sim.Fault{
		{RPC: sim.Serve, Delay: metav1.Duration{Duration: 300 * time.Millisecond}},
	}})
	if res := r.untilDisconnected(gpu); res.Problem != "waiting for the plugin on example.com_gpu.sock to send its devices" {
		t.Errorf("problem %q", res.Problem)
	}
	r.untilConnected(gpu)
}

func TestAgentRestarts(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	r.stop()
	if _, err := os.Stat(filepath.Join(r.dir, SocketName)); !os.IsNotExist(err) {
		t.Errorf("the registration socket is still there: %v", err)
	}

	again := newRig(t, Config{Dir: r.dir, Known: []string{gpu}})
	again.untilConnected(gpu) // the plugin saw the new socket
	again.stop()
	plugin.stop()

	away := newRig(t, Config{Dir: r.dir, Known: []string{gpu}})
	if res := away.Inventory().Resources[gpu]; res.Connected || res.Problem == "" {
		t.Errorf("with the plugin away the resource is %+v", res)
	}
	var stopped *StoppedError
	if err := away.caller(sim.PreStart, gpu); !errors.As(err, &stopped) {
		t.Errorf("PreStart says %v", err)
	}
	away.plugin(sim.Config{Resource: gpu})
	away.untilConnected(gpu)
}

func TestOldSocketsAreRemoved(t *testing.T) {
	dir := shortDir(t)
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "old.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	if err := errors.Join(old.Close(), os.Mkdir(filepath.Join(dir, "folder"), 0o700),
		os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	newRig(t, Config{Dir: dir})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{"folder", "kubelet.sock", "kubelet_internal_checkpoint"}; !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}
