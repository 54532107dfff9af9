// Package csitest has a CSI driver for tests: it answers, hangs, fails and dies as it is told, records
// the calls that it gets, and says which of them no caller may make.
package csitest

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/watcher/watchertest"
	"github.com/numalet/numalet/test/scratch"
)

// Name is a driver's name unless its Config says another.
const Name = "disk.example.com"

// Config says what a driver is called, where its sockets are, and what it can do.
type Config struct {
	Name string // "": Name
	// Registry is the plugin registry where the driver has a socket; "": it has none.
	Registry string
	// Dir has the driver's own socket; "": a directory of the test.
	Dir string
	// Instance tells the sockets of several instances of a driver apart.
	Instance string
	// The driver lists Versions; nil: 1.0.0.
	Versions []string
	// Can lists what its node service can do.
	Can []csipb.NodeServiceCapability_RPC_Type
	// Info answers NodeGetInfo; nil: the node's id is node-1.
	Info *csipb.NodeGetInfoResponse
	// Stats answers NodeGetVolumeStats.
	Stats *csipb.NodeGetVolumeStatsResponse
	// Mounter mounts volumes; nil: the driver only makes directories and files.
	Mounter Mounter
}

// Mounter mounts and unmounts; k8s.io/mount-utils has one for the host and one in memory.
type Mounter interface {
	Mount(source, target, fstype string, options []string) error
	Unmount(target string) error
}

// Driver is a driver that runs in the test's process.
type Driver struct {
	*watchertest.Sockets
	cfg Config
	calls
	canceled atomic.Int64

	mu      sync.Mutex // guards the fields below
	volumes volumes
	ill     illness
}

// New returns a driver that does not run.
func New(cfg Config) *Driver {
	cfg.Name = cmp.Or(cfg.Name, Name)
	if cfg.Versions == nil {
		cfg.Versions = []string{"1.0.0"}
	}
	if cfg.Info == nil {
		cfg.Info = &csipb.NodeGetInfoResponse{NodeId: "node-1"}
	}
	d := &Driver{cfg: cfg, volumes: newVolumes(cfg)}
	d.Sockets = watchertest.New(watchertest.Config{
		Type: registerapi.CSIPlugin, Name: cfg.Name, Versions: cfg.Versions, Instance: cfg.Instance,
		Dir: cfg.Dir, Suffix: ".sock", Registry: cfg.Registry, Services: d.server,
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
	s := grpc.NewServer(grpc.UnaryInterceptor(d.handle))
	csipb.RegisterNodeServer(s, services{driver: d})
	return s
}

// Stop removes the sockets and ends.
func (d *Driver) Stop() {
	d.Remove()
	d.Kill()
}

// Says replaces the answer to NodeGetInfo.
func (d *Driver) Says(info *csipb.NodeGetInfoResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Info = info
}

// Measured replaces the answer to NodeGetVolumeStats.
func (d *Driver) Measured(stats *csipb.NodeGetVolumeStatsResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Stats = stats
}

func (d *Driver) String() string { return fmt.Sprintf("driver %s%s", d.cfg.Name, d.cfg.Instance) }
