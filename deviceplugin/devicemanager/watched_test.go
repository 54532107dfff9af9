package devicemanager

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/dra/dratest"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/test/scratch"
)

func (r *rig) registryPlugin(cfg sim.Config, end error) *simulated {
	r.t.Helper()
	cfg.RegistryDir = r.cfg.Dirs.Registry
	return startPlugin(r.t, cfg, end)
}

func newRegistryRig(t *testing.T) *rig {
	t.Helper()
	return newRig(t, Config{Dirs: Dirs{Registry: scratch.Dir(t)}, Registry: metrics.NewKubeRegistry()})
}

func TestRegistryPlugin(t *testing.T) {
	r := newRegistryRig(t)
	plugin := r.registryPlugin(sim.Config{Resource: gpu, PreStart: true}, nil)
	res := r.untilConnected(gpu)
	if healthy(res.Devices) != 8 || res.Options != (Options{Preferred: true, PreStart: true, Reasons: true, Places: true}) {
		t.Errorf("the resource is %+v", res)
	}
	if err := r.caller(sim.Allocate, gpu); err != nil {
		t.Error(err)
	}
	eventually(t, "the plugin to be told", func() bool {
		state, err := plugin.State(t.Context())
		return err == nil && state.Registered == 1 && state.Calls[sim.Register] == 1
	})
	count, err := testutil.GetCounterMetricValue(r.metrics.registrations.WithLabelValues(gpu))
	if err != nil || count != 1 {
		t.Errorf("registrations: %v, %v", count, err)
	}
	for rpc, name := range map[string]string{
		"Dial": "", "GetInfo": gpu, "NotifyRegistrationStatus": gpu,
	} {
		eventually(t, rpc+" to be counted", func() bool {
			n, err := testutil.GetCounterMetricValue(
				r.metrics.calls.WithLabelValues(name, rpc, "ok"))
			return err == nil && n == 1
		})
	}
	if _, err := os.Lstat(filepath.Join(r.dir, deprecationName)); !os.IsNotExist(err) {
		t.Errorf("plugins made with Kubernetes' stub would not register: %v", err)
	}
}

// Plugins of another type reach their handler, and count in no metric of device plugins.
func TestRegistryHasOtherTypes(t *testing.T) {
	taken := make(chan watcher.Plugin, 1)
	dir := scratch.Dir(t)
	r := newRig(t, Config{Registry: metrics.NewKubeRegistry(), Dirs: Dirs{
		Registry: dir, Others: map[string]watcher.Handler{
			registerapi.DRAPlugin: func(_ context.Context, p watcher.Plugin) (*watcher.Membership, error) {
				taken <- p
				return &watcher.Membership{Leave: func() {}}, nil
			},
		},
	}})
	driver := dratest.Start(t, dratest.Config{Name: "gpu.example.com", Registry: dir})
	if p := <-taken; p.Name != "gpu.example.com" || p.Endpoint != driver.Endpoint {
		t.Errorf("taken in as %+v", p)
	}
	eventually(t, "the driver to be told", func() bool { return len(driver.Notified()) == 1 })
	if notice := driver.Notified()[0]; !notice.PluginRegistered || len(r.Peers()) > 0 {
		t.Errorf("told %v, peers %+v", notice, r.Peers())
	}
}

func TestRegistrySocketGoesAndReturns(t *testing.T) {
	r := newRegistryRig(t)
	plugin := r.registryPlugin(sim.Config{Resource: gpu}, nil)
	r.untilConnected(gpu)
	plugin.untilRegistered(1)
	// The plugin itself lives on: removing the socket ends its registration.
	if err := os.Remove(filepath.Join(r.cfg.Dirs.Registry, "example.com_gpu.sock")); err != nil {
		t.Fatal(err)
	}
	res := r.untilDisconnected(gpu)
	want := "plugin on example.com_gpu.sock: its socket in the plugin registry was removed"
	if res.Problem != want || len(res.Devices) != 8 || healthy(res.Devices) != 0 {
		t.Errorf("the resource is %+v", res)
	}
	for i := range 3 {
		plugin.must(plugin.Restart(t.Context()))
		plugin.untilRegistered(i + 2)
		r.untilConnected(gpu)
	}
}

func TestRegistryPluginCrashes(t *testing.T) {
	r := newRegistryRig(t)
	plugin := r.registryPlugin(sim.Config{Resource: gpu}, sim.ErrCrashed)
	r.untilConnected(gpu)
	plugin.must(plugin.Crash(t.Context()))
	r.untilDisconnected(gpu)
	r.registryPlugin(sim.Config{Resource: gpu}, nil)
	r.untilConnected(gpu)
}

func TestRegistryPluginEndsItsStream(t *testing.T) {
	r := newRig(t, Config{
		Dirs: Dirs{Registry: scratch.Dir(t)}, Deadlines: Deadlines{Ended: time.Millisecond},
	})
	plugin := r.registryPlugin(sim.Config{Resource: gpu}, nil)
	r.untilConnected(gpu)
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Code: "UNAVAILABLE", Count: 1}))
	r.untilDisconnected(gpu)
	r.untilConnected(gpu)
	if n := plugin.calls(sim.Register); n != 1 {
		t.Errorf("the plugin was asked %d times", n)
	}
}

func TestAgentRestartsWithRegistry(t *testing.T) {
	r := newRegistryRig(t)
	plugin := r.registryPlugin(sim.Config{Resource: gpu}, nil)
	r.untilConnected(gpu)
	r.stop()
	again := newRig(t, Config{Dirs: Dirs{Plugins: r.dir, Registry: r.cfg.Dirs.Registry}, Before: Before{Resources: []string{gpu}}})
	again.untilConnected(gpu)
	if n := plugin.calls(sim.Register); n != 2 {
		t.Errorf("the plugin was asked %d times", n)
	}
}

// introduced is the registration half of a plugin, with any answer.
type introduced struct {
	registerapi.UnimplementedRegistrationServer
	info    *registerapi.PluginInfo
	outcome chan *registerapi.RegistrationStatus
}

func (i introduced) GetInfo(context.Context,
	*registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return i.info, nil
}

func (i introduced) NotifyRegistrationStatus(
	_ context.Context, outcome *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	select {
	case i.outcome <- outcome:
	default: // one attempt is enough
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// introduce serves Registration on path and returns the first status that the plugin hears.
func introduce(t *testing.T, path string,
	info *registerapi.PluginInfo) *registerapi.RegistrationStatus {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	plugin := introduced{info: info, outcome: make(chan *registerapi.RegistrationStatus, 1)}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	registerapi.RegisterRegistrationServer(server, plugin)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	select {
	case outcome := <-plugin.outcome:
		return outcome
	case <-time.After(patience):
		t.Fatal("the plugin is told nothing")
		return nil
	}
}

func TestRegistryEndpointElsewhere(t *testing.T) {
	r := newRegistryRig(t)
	elsewhere := scratch.Dir(t)
	startPlugin(t, sim.Config{Resource: gpu, Dir: elsewhere, Socket: "work.sock"}, nil)
	outcome := introduce(t, filepath.Join(r.cfg.Dirs.Registry, "gpu-reg.sock"),
		&registerapi.PluginInfo{
			Type: registerapi.DevicePlugin, Name: gpu,
			Endpoint:          filepath.Join(elsewhere, "work.sock"),
			SupportedVersions: []string{"v1alpha1", "v1beta1"},
		})
	if !outcome.PluginRegistered || outcome.Error != "" {
		t.Errorf("the plugin is told %v", outcome)
	}
	r.untilConnected(gpu)
}

func TestRegistryEndpointServesLate(t *testing.T) {
	r := newRig(t, Config{
		Dirs: Dirs{Registry: scratch.Dir(t)}, Deadlines: Deadlines{Dial: 100 * time.Millisecond},
	})
	elsewhere := scratch.Dir(t)
	introduce(t, filepath.Join(r.cfg.Dirs.Registry, "gpu-reg.sock"), &registerapi.PluginInfo{
		Type: registerapi.DevicePlugin, Name: gpu, Endpoint: filepath.Join(elsewhere, "work.sock"),
		SupportedVersions: []string{"v1beta1"},
	})
	r.until("the dial to be given up", func(inv Inventory) bool {
		return strings.Contains(inv.Resources[gpu].Problem, "no answer in 100ms")
	})
	startPlugin(t, sim.Config{Resource: gpu, Dir: elsewhere, Socket: "work.sock"}, nil)
	r.untilConnected(gpu)
}

func TestRegistryRefusals(t *testing.T) {
	r := newRegistryRig(t)
	const failed = "RegisterPlugin error -- plugin registration failed with err: "
	const nobody = "RegisterPlugin error -- no handler registered for plugin type: "
	versions := []string{"v1beta1"}
	for name, tc := range map[string]struct {
		info *registerapi.PluginInfo
		want string
	}{
		"csi": {&registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: "csi"},
			nobody + "CSIPlugin at socket SOCKET"},
		"dra": {&registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "dra"},
			nobody + "DRAPlugin at socket SOCKET"},
		"version": {&registerapi.PluginInfo{
			Type: "DevicePlugin", Name: gpu, SupportedVersions: []string{"v1", "v2"},
		},
			failed + "manager version, v1beta1, is not among plugin supported versions [v1 v2]"},
		"name": {&registerapi.PluginInfo{
			Type: "DevicePlugin", Name: "cpu", SupportedVersions: versions,
		},
			failed + `the ResourceName "cpu" is invalid: choose a name like vendor.com/device, ` +
				`with a domain that is not kubernetes.io`},
		"relative": {&registerapi.PluginInfo{
			Type: "DevicePlugin", Name: gpu, Endpoint: "a.sock", SupportedVersions: versions,
		},
			failed + `the endpoint "a.sock" is invalid: give the path of the plugin's socket, ` +
				`or nothing if it is the one in the plugin registry`},
		"long": {&registerapi.PluginInfo{Type: "DevicePlugin", Name: gpu,
			SupportedVersions: versions, Endpoint: "/" + strings.Repeat("x", 107)},
			failed + `the endpoint "/` + strings.Repeat("x", 107) +
				`" is invalid: with the directory it has 108 bytes, unix sockets allow 107`},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(r.cfg.Dirs.Registry, name+".sock")
			outcome := introduce(t, socket, tc.info)
			want := strings.ReplaceAll(tc.want, "SOCKET", socket)
			if outcome.PluginRegistered || outcome.Error != want {
				t.Errorf("the plugin is told %v, want %s", outcome, want)
			}
		})
	}
	if inv := r.Inventory(); len(inv.Resources) > 0 {
		t.Errorf("refused plugins are in the inventory: %+v", inv.Resources)
	}
}
