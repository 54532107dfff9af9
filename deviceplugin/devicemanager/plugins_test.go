package devicemanager

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

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/scratch"
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
	want := Resource{
		Generation: 1,
		Name:       gpu, Connected: true, Capacity: 8, Allocatable: 8,
		Options: Options{Preferred: true, PreStart: true, Reasons: true, Places: true},
	}
	for i := range 8 {
		want.Devices = append(want.Devices, &Device{
			ID: fmt.Sprintf("gpu-%d", i), Healthy: true,
			Nodes: topology.NewNodeSet(topology.NodeID(i / 2)),
		})
	}
	diff := cmp.Diff(want, res, cmp.Comparer(func(a, b topology.NodeSet) bool { return a == b }))
	if diff != "" {
		t.Errorf("resource, -want +got:\n%s", diff)
	}

	ids, err := r.Preferred(t.Context(),
		PreferredRequest{Resource: gpu, Available: idsOf(res.Devices), Size: 2})
	if err != nil || !slices.Equal(ids, []string{"gpu-0", "gpu-1"}) {
		t.Errorf("preferred %q, %v", ids, err)
	}
	resp, err := r.Allocate(t.Context(), gpu, ids)
	if err != nil {
		t.Fatal(err)
	}
	wantResp := &v1beta1.ContainerAllocateResponse{
		Envs: map[string]string{"SIM_GPU_VISIBLE_DEVICES": "gpu-0,gpu-1"},
		Devices: []*v1beta1.DeviceSpec{{
			HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: "rw",
		}},
		Mounts:      []*v1beta1.Mount{{HostPath: "/tmp", ContainerPath: "/host", ReadOnly: true}},
		Annotations: map[string]string{"a": "b"},
		CdiDevices: []*v1beta1.CDIDevice{{Name: "example.com/gpu=gpu-0"},
			{Name: "example.com/gpu=gpu-1"}},
	}
	if diff := cmp.Diff(wantResp, resp, protocmp.Transform()); diff != "" {
		t.Errorf("answer, -want +got:\n%s", diff)
	}
	if err := r.PreStart(t.Context(), gpu, ids); err != nil {
		t.Error(err)
	}
	for _, rpc := range []sim.RPC{
		sim.Register, sim.Options, sim.List, sim.Preferred, sim.Allocate, sim.PreStart,
	} {
		if n := plugin.calls(rpc); n != 1 {
			t.Errorf("%s was called %d times", rpc, n)
		}
	}
	for _, rpc := range []string{
		rpcDial, rpcOptions, rpcList, rpcPreferred, rpcAllocate, rpcPreStart,
	} {
		n, err := testutil.GetCounterMetricValue(r.metrics.calls.WithLabelValues(gpu, rpc, "ok"))
		took, err2 := testutil.GetHistogramMetricCount(r.metrics.took.WithLabelValues(gpu, rpc))
		if n != 1 || took != 1 || err != nil || err2 != nil {
			t.Errorf("%s is counted %v and %v times, %v, %v", rpc, n, took, err, err2)
		}
	}
	count, err := testutil.GetCounterMetricValue(r.metrics.registrations.WithLabelValues(gpu))
	if err != nil || count != 1 {
		t.Errorf("registrations: %v, %v", count, err)
	}
	n, err := testutil.GetHistogramMetricCount(r.metrics.allocations.WithLabelValues(gpu))
	if err != nil || n != 1 {
		t.Errorf("allocations: %v, %v", n, err)
	}
}

func TestPluginWithoutDevices(t *testing.T) {
	r := newRig(t, Config{})
	r.plugin(sim.Config{Resource: gpu, Devices: []sim.Device{}})
	if res := r.untilConnected(gpu); len(res.Devices) != 0 {
		t.Errorf("the resource is %+v", res)
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
	plugin.must(plugin.Add(t.Context(), sim.Device{ID: "gpu-10", Healthy: true},
		sim.Device{ID: "gpu-9", Healthy: true}))
	plugin.must(plugin.Remove(t.Context(), "gpu-0"))
	inv = r.until("gpu-0 to leave", func(inv Inventory) bool {
		return inv.Resources[gpu].Devices[0].ID != "gpu-0"
	})
	want := []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7", "gpu-9",
		"gpu-10"}
	if diff := cmp.Diff(want, idsOf(inv.Resources[gpu].Devices)); diff != "" {
		t.Errorf("ids, -want +got:\n%s", diff)
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
	want := "endpoint " + filepath.Join(r.dir, "example.com_gpu.sock") + " has been stopped: "
	if err := r.caller(sim.PreStart, gpu); err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "ListAndWatch") {
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

// The end of the list stays the reason why a plugin is away, even if it cannot be reached
// afterwards.
func TestCauseStays(t *testing.T) {
	r := newRig(t, Config{Deadlines: Deadlines{Dial: 200 * time.Millisecond, Ended: time.Millisecond}})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Code: "INTERNAL", Message: "no power"}))
	r.until("the cause", func(inv Inventory) bool {
		return strings.Contains(inv.Resources[gpu].Problem, "no power")
	})
	plugin.stop()
	r.until("that it cannot be reached beside the cause", func(inv Inventory) bool {
		problem := inv.Resources[gpu].Problem
		return strings.Contains(problem, "no power") && strings.Contains(problem, "failed to dial")
	})
}

func TestGraceEnds(t *testing.T) {
	r := newRig(t, Config{Graces: Graces{Capacity: 100 * time.Millisecond}, Before: Before{Resources: []string{nic}}})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	plugin.stop()
	r.until("both resources to be gone", func(inv Inventory) bool {
		return len(inv.Resources) == 0
	})
}

// The allocatable grace of a plugin that lives but sends no list ends as for a plugin that has
// ended.
func TestGraceEndsWhileThePluginIsTriedAgain(t *testing.T) {
	r := newRig(t, Config{
		Graces:    Graces{Capacity: time.Hour, Allocatable: time.Millisecond},
		Deadlines: Deadlines{Ended: time.Millisecond},
	})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Code: "UNAVAILABLE"}))
	r.until("the devices not to be allocatable", func(inv Inventory) bool {
		res := inv.Resources[gpu]
		return !res.Connected && res.Capacity == 8 && res.Allocatable == 0
	})
	plugin.must(plugin.ClearFaults(t.Context()))
	if res := r.untilConnected(gpu); res.Allocatable != 8 {
		t.Errorf("after the return the resource is %+v", res)
	}
}

func TestRestartOfThePlugin(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	plugin.untilRegistered(1)
	for i := range 5 {
		plugin.must(plugin.Restart(t.Context()))
		plugin.untilRegistered(i + 2)
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
	newer := r.plugin(sim.Config{
		Resource: gpu, Socket: "new.sock", Faults: []sim.Fault{{RPC: sim.List, Hang: true}},
	})
	eventually(t, "the newer one to be asked", func() bool { return newer.calls(sim.List) == 1 })
	if res := r.Inventory().Resources[gpu]; !res.Connected || len(res.Devices) != 4 {
		t.Errorf("before the newer one has a list, the resource is %+v", res)
	}
	newer.must(newer.ClearFaults(t.Context()))
	r.until("the newer one to take over", func(inv Inventory) bool {
		return len(inv.Resources[gpu].Devices) == 8
	})
	if err := r.caller(sim.Allocate, gpu); err != nil || newer.calls(sim.Allocate) != 1 {
		t.Errorf("the call went elsewhere (%v)", err)
	}
	older.stop() // nobody sees it; the next plugin's list shows that time has passed
	r.plugin(sim.Config{Resource: "example.com/nic"})
	r.untilConnected("example.com/nic")
	if res := r.Inventory().Resources[gpu]; !res.Connected || healthy(res.Devices) != 8 {
		t.Errorf("the older one's end made the resource %+v", res)
	}
}

func TestStandby(t *testing.T) {
	r := newRig(t, Config{})
	r.plugin(sim.Config{Resource: gpu, Socket: "old.sock", Devices: spread(t, 4, "0")})
	r.untilConnected(gpu)
	newer := r.plugin(sim.Config{Resource: gpu, Socket: "new.sock"})
	r.until("the newer one to take over", func(inv Inventory) bool {
		return len(inv.Resources[gpu].Devices) == 8
	})
	newer.stop()
	inv := r.until("the older one to take back", func(inv Inventory) bool {
		return len(inv.Resources[gpu].Devices) == 4
	})
	if res := inv.Resources[gpu]; !res.Connected || healthy(res.Devices) != 4 {
		t.Errorf("the resource is %+v", res)
	}
}

func TestCallOutlivesItsLink(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{
		Resource: gpu, Faults: []sim.Fault{{RPC: sim.Allocate, Hang: true}},
	})
	r.untilConnected(gpu)
	answer := make(chan error, 1)
	go func() { answer <- r.caller(sim.Allocate, gpu) }()
	eventually(t, "the call to reach the plugin", func() bool {
		return plugin.calls(sim.Allocate) == 1
	})
	// The same socket again, from a plugin that is still there.
	if err := registerWith(t, r.dir, v1beta1.Version, "example.com_gpu.sock", gpu); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin to be listed again", func() bool {
		return plugin.calls(sim.List) == 2
	})
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
	r.until("the list to come still", func(inv Inventory) bool {
		return healthy(inv.Resources[gpu].Devices) == 7
	})
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
	res := r.untilDisconnected(gpu)
	if res.Problem != "waiting for the plugin on example.com_gpu.sock to send its devices" {
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

	again := newRig(t, Config{Dirs: Dirs{Plugins: r.dir}, Before: Before{Resources: []string{gpu}}})
	again.untilConnected(gpu) // the plugin saw the new socket
	again.stop()
	plugin.stop()

	away := newRig(t, Config{Dirs: Dirs{Plugins: r.dir}, Before: Before{Resources: []string{gpu}}})
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
	dir := scratch.Dir(t)
	old, err := net.ListenUnix("unix",
		&net.UnixAddr{Name: filepath.Join(dir, "old.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	if err := errors.Join(old.Close(), os.Mkdir(filepath.Join(dir, "folder"), 0o700),
		os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	newRig(t, Config{Dirs: Dirs{Plugins: dir}})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{"folder", "kubelet.sock", "kubelet_internal_checkpoint"}
	if !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}
