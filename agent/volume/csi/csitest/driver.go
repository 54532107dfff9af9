// Package csitest has a CSI driver for tests: it answers, hangs, fails and dies as it is told, records
// the calls that it gets, and says which of them no caller may make.
package csitest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

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
	// Versions is what the driver lists; nil: 1.0.0.
	Versions []string
	// Can is what its node service can do.
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
	cfg Config
	// Endpoint is the path of the driver's own socket, Socket that in the plugin registry.
	Endpoint, Socket string
	calls

	mu      sync.Mutex // guards the fields below
	servers []*grpc.Server
	told    []*registerapi.RegistrationStatus
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
	d := &Driver{cfg: cfg, calls: calls{faults: map[string]Fault{}}, volumes: newVolumes(cfg)}
	name := cfg.Name + cfg.Instance
	if cfg.Dir != "" {
		d.Endpoint = filepath.Join(cfg.Dir, name+".sock")
	}
	if cfg.Registry != "" {
		d.Socket = filepath.Join(cfg.Registry, name+"-reg.sock")
	}
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

// Revive serves the sockets, after Stop or Kill.
func (d *Driver) Revive(t testing.TB) {
	t.Helper()
	for _, path := range []string{d.Endpoint, d.Socket} {
		if path == "" {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		d.serve(l)
	}
}

func (d *Driver) serve(l net.Listener) {
	s := grpc.NewServer()
	csipb.RegisterNodeServer(s, services{driver: d})
	registerapi.RegisterRegistrationServer(s, services{driver: d})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers = append(d.servers, s)
	go func() { _ = s.Serve(l) }() // Kill and Stop end it
}

// Stop removes the sockets and ends.
func (d *Driver) Stop() {
	for _, path := range []string{d.Socket, d.Endpoint} {
		_ = os.Remove(path) // it may have gone before
	}
	d.Kill()
}

// Kill ends as a killed process does: connections break, sockets stay.
func (d *Driver) Kill() {
	for _, s := range d.take() {
		s.Stop()
	}
}

func (d *Driver) take() []*grpc.Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.servers
	d.servers = nil
	return out
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

// Told returns what the driver was told of its registrations.
func (d *Driver) Told() []*registerapi.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

func (d *Driver) String() string { return fmt.Sprintf("driver %s%s", d.cfg.Name, d.cfg.Instance) }
