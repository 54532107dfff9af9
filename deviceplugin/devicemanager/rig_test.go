package devicemanager

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/scratch"
	"github.com/numalet/numalet/topology"
)

// patience bounds a wait; only a failing test reaches it.
const patience = 20 * time.Second

const gpu, nic = "example.com/gpu", "example.com/nic"

// rig is a device manager that runs in its own directory.
type rig struct {
	*Plugins
	t       *testing.T
	dir     string
	stop    func()
	changed <-chan struct{} // capacity 1
}

// newTestLink returns a link without a connection.
func newTestLink(resource, path string) *link {
	return &link{connection: connection{resource: resource, socket: path}}
}

// newRig starts a device manager; cfg.Dirs may be those of an earlier one.
func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	if cfg.Dirs.Plugins == "" {
		cfg.Dirs.Plugins = scratch.Dir(t)
	}
	if cfg.NodeIDs.IsEmpty() {
		cfg.NodeIDs = topology.NewNodeSet(0, 1, 2, 3)
	}
	if cfg.Graces == (Graces{}) {
		cfg.Graces = DefaultGraces()
	}
	changed := make(chan struct{}, 1)
	cfg.Changed = func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	plugins, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, ctx := ktesting.NewTestContext(t)
	stop := background(t, ctx, plugins.Run, nil)
	select {
	case <-plugins.Ready():
	case <-time.After(patience):
		t.Fatal("the device manager is not ready")
	}
	return &rig{Plugins: plugins, t: t, dir: cfg.Dirs.Plugins, stop: stop, changed: changed}
}

// background runs f until the test ends or the returned function is called, and checks its error.
func background(t *testing.T, ctx context.Context, f func(context.Context) error,
	want error) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); !errors.Is(err, want) {
			t.Errorf("run ended with %v, want %v", err, want)
		}
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// simulated is a device plugin that runs in this process.
type simulated struct {
	*sim.Client
	t    *testing.T
	stop func()
}

func (r *rig) plugin(cfg sim.Config) *simulated {
	r.t.Helper()
	cfg.Dir = r.dir
	return startPlugin(r.t, cfg, nil)
}

func startPlugin(t *testing.T, cfg sim.Config, end error) *simulated {
	t.Helper()
	if cfg.Devices == nil {
		cfg.Devices = spread(t, 8, "0-3")
	}
	cfg.Control = filepath.Join(scratch.Dir(t), "control.sock")
	cfg.Out = logWriter{t}
	plugin, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulated{
		Client: sim.NewClient(cfg.Control), t: t,
		stop: background(t, t.Context(), plugin.Run, end),
	}
	eventually(t, "the control socket", func() bool {
		_, err := s.State(t.Context())
		return err == nil
	})
	return s
}

// must checks the outcome of an order.
func (s *simulated) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// calls returns how often a call was made.
func (s *simulated) calls(rpc sim.RPC) int {
	s.t.Helper()
	state, err := s.State(s.t.Context())
	s.must(err)
	return state.Calls[rpc]
}

// untilRegistered waits until the plugin was told so many times that it is registered. Its devices
// may be known earlier, and a plugin that is told to begin anew in between is never told.
func (s *simulated) untilRegistered(times int) {
	s.t.Helper()
	eventually(s.t, "the plugin to be registered", func() bool {
		state, err := s.State(s.t.Context())
		s.must(err)
		return state.Registered >= times
	})
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s", line)
	return len(line), nil
}

func spread(t *testing.T, n int, nodes string) []sim.Device {
	t.Helper()
	set, err := topology.ParseNodeSet(nodes)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := sim.Spread("gpu", n, set, sim.Blocked)
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// until waits until the inventory is as wanted.
func (r *rig) until(what string, wanted func(Inventory) bool) Inventory {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		inv := r.Inventory()
		if wanted(inv) {
			return inv
		}
		select {
		case <-r.changed:
		case <-deadline:
			r.t.Fatalf("waiting for %s; the inventory is %+v", what, inv.Resources)
		}
	}
}

func (r *rig) untilConnected(resource string) Resource {
	r.t.Helper()
	return r.until(resource+" to be connected", func(inv Inventory) bool {
		return inv.Resources[resource].Connected
	}).Resources[resource]
}

func (r *rig) untilDisconnected(resource string) Resource {
	r.t.Helper()
	return r.until(resource+" to be disconnected with a problem", func(inv Inventory) bool {
		res, known := inv.Resources[resource]
		return known && !res.Connected
	}).Resources[resource]
}

// eventually polls for a state that wakes nobody.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waiting for %s", what)
		}
	}
}

func idsOf(devices []*Device) []string {
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

func healthy(devices []*Device) int {
	return len(slices.DeleteFunc(slices.Clone(devices), func(d *Device) bool { return !d.Healthy }))
}
