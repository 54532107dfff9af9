// Package dratest has a DRA driver for tests: it answers, hangs, fails and dies as it is told, and
// records the calls that it gets.
package dratest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/watcher/watchertest"
	"github.com/numalet/numalet/test/scratch"
)

// Names of calls.
const (
	Prepare   = "NodePrepareResources"
	Unprepare = "NodeUnprepareResources"
)

// Config says what a driver is called, where its sockets are, and what it answers.
type Config struct {
	// Name is the driver's; "": gpu.example.com.
	Name string
	// Registry is the plugin registry where the driver has a socket; "": it has none.
	Registry string
	// Dir has the driver's own socket; "": a directory of the test.
	Dir string
	// Instance tells the sockets of several instances of a driver apart.
	Instance string
	// The driver lists Versions; nil: both services of claims, and none of health.
	Versions []string
	// Unserved are services of Versions that the driver does not serve.
	Unserved []string
	// Prepare answers for one claim; nil: OneDevice.
	Prepare func(context.Context, dra.Claim) dra.Answer
	// Unprepare answers for one claim; nil: success.
	Unprepare func(context.Context, dra.Claim) error
	// Silent: health streams say nothing.
	Silent bool
	// Edit changes an answer before it is sent. Optional.
	Edit func(*drav1.NodePrepareResourcesResponse)
}

// OneDevice is the default answer: one device, with a CDI id named after the claim.
func OneDevice(_ context.Context, c dra.Claim) dra.Answer {
	return dra.Answer{Devices: []dra.Device{{
		Pool: "pool", Name: "device-0", CDI: []string{"example.com/gpu=" + c.Name},
	}}}
}

// Fault makes calls of the driver misbehave.
type Fault = watchertest.Fault

// Call is a call that the driver got.
type Call struct {
	RPC    string
	Claims []dra.Claim
	Began  time.Time
	// Ended is zero while the call is under way.
	Ended time.Time
	// Err is the error of the call as a whole.
	Err error
}

// Driver is a driver that runs in the test's process.
type Driver struct {
	*watchertest.Sockets
	watchertest.Faults
	cfg Config

	mu       sync.Mutex // guards the fields below
	calls    []Call
	prepared map[types.UID]dra.Claim
	quit     chan struct{} // closed and replaced when the servers end
	health   health
}

// health lists what health streams say.
type health struct {
	last    *healthv1.NodeWatchResourcesResponse // nil: nothing was said yet
	news    chan struct{}                        // closed and replaced with last
	streams int
	endWith chan error // takes the end of one stream
}

// New returns a driver that does not run.
func New(cfg Config) *Driver {
	cfg.Name = cmp.Or(cfg.Name, "gpu.example.com")
	if cfg.Versions == nil {
		cfg.Versions = dra.Services()
	}
	if cfg.Prepare == nil {
		cfg.Prepare = OneDevice
	}
	if cfg.Unprepare == nil {
		cfg.Unprepare = func(context.Context, dra.Claim) error { return nil }
	}
	d := &Driver{
		cfg: cfg, prepared: map[types.UID]dra.Claim{}, quit: make(chan struct{}),
		health: health{news: make(chan struct{}), endWith: make(chan error)},
	}
	d.Sockets = watchertest.New(watchertest.Config{
		Type: registerapi.DRAPlugin, Name: cfg.Name, Versions: cfg.Versions, Instance: cfg.Instance,
		Dir: cfg.Dir, Suffix: ".dra.sock", Registry: cfg.Registry, Services: d.server,
	})
	return d
}

// Start returns a driver that serves its sockets until the test ends.
func Start(t testing.TB, cfg Config) *Driver {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = scratch.Dir(t)
	}
	d := New(cfg)
	t.Cleanup(d.Stop)
	d.Revive(t)
	return d
}

func (d *Driver) server() *grpc.Server {
	s := grpc.NewServer(grpc.StatsHandler(connections{}))
	claims := services{driver: d}
	if !slices.Contains(d.cfg.Unserved, drav1.DRAPluginService) {
		drav1.RegisterDRAPluginServer(s, claims)
	}
	if !slices.Contains(d.cfg.Unserved, drav1beta1.DRAPluginService) {
		drav1beta1.RegisterDRAPluginServer(s, drav1beta1.V1ServerWrapper{DRAPluginServer: claims})
	}
	healthv1.RegisterDRAResourceHealthServer(s, claims)
	healthv1alpha1.RegisterDRAResourceHealthServer(s, healthv1.V1ServerWrapper{Server: claims})
	return s
}

// Stop removes the sockets, lets calls end, and ends.
func (d *Driver) Stop() {
	d.Remove()
	d.endStreams()
	d.Sockets.Stop(5 * time.Second)
}

// Kill ends as a killed process does: connections break, sockets stay.
func (d *Driver) Kill() {
	d.endStreams()
	d.Sockets.Kill()
}

func (d *Driver) endStreams() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.quit)
	d.quit = make(chan struct{})
}

// Calls returns the calls so far.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Prepared returns the claims that are prepared and not unprepared.
func (d *Driver) Prepared() map[types.UID]dra.Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.prepared)
}

// Say sends a message to the health streams, also to those that begin later.
func (d *Driver) Say(devices ...*healthv1.DeviceHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health.last = &healthv1.NodeWatchResourcesResponse{Devices: devices}
	close(d.health.news)
	d.health.news = make(chan struct{})
}

// EndStream ends one health stream with an error, which may be nil.
func (d *Driver) EndStream(t testing.TB, err error) {
	t.Helper()
	select {
	case d.health.endWith <- err:
	case <-time.After(20 * time.Second):
		t.Fatal("no health stream is there to end")
	}
}

// Streams returns the number of health streams.
func (d *Driver) Streams() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.health.streams
}

func (d *Driver) String() string { return fmt.Sprintf("driver %s%s", d.cfg.Name, d.cfg.Instance) }
