package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config says what the driver is and what it offers. It is JSON for a driver in its own process.
type Config struct {
	// Name is the driver's, as test.example.com; Node is the node's id, with which volumes attach.
	Name, Node string
	// Nodes are others that its controller attaches volumes to. Their drivers share Dir.
	Nodes []string
	// Dir has the driver's files; Socket is where it serves CSI.
	Dir, Socket string
	// Registry is the agent's plugins_registry; empty: the driver does not register.
	Registry string
	// MaxVolumes and Topology are in the answer to NodeGetInfo.
	MaxVolumes int64
	Topology   map[string]string
	// NoAttach leaves out the controller's publishing, NoStage staging.
	NoAttach, NoStage bool
	// MountGroup offers VOLUME_MOUNT_GROUP.
	MountGroup bool
}

// Driver serves CSI's identity, controller and node services.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	config  Config
	journal *journal

	mu   sync.Mutex      // guards busy, the volumes' files and the orders
	busy map[string]bool // volumes with a call under way
}

// New returns a driver whose folder exists.
func New(c Config) (*Driver, error) {
	if c.Name == "" || c.Node == "" || c.Socket == "" {
		return nil, fmt.Errorf("driver %q of node %q at %q: it needs a name, a node and a socket",
			c.Name, c.Node, c.Socket)
	}
	for _, dir := range []string{"volumes", "ephemeral"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o750); err != nil {
			return nil, err
		}
	}
	j, err := openJournal(c.Dir)
	if err != nil {
		return nil, err
	}
	return &Driver{config: c, journal: j, busy: map[string]bool{}}, nil
}

// stopsWithin bounds how long calls may go on when the driver ends.
const stopsWithin = time.Second

// Run serves until ctx ends and then removes the sockets, as a driver whose pod is deleted.
func (d *Driver) Run(ctx context.Context) error {
	defer d.journal.file.Close()
	serving := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csi.RegisterIdentityServer(serving, d)
	csi.RegisterControllerServer(serving, d)
	csi.RegisterNodeServer(serving, d)
	servers := []*grpc.Server{serving}
	sockets := []string{d.config.Socket} // of the servers; an agent that is told of the driver calls it at once
	if d.config.Registry != "" {
		registry := grpc.NewServer()
		registerapi.RegisterRegistrationServer(registry, registration{d: d})
		servers = append(servers, registry)
		sockets = append(sockets, filepath.Join(d.config.Registry, d.config.Name+"-reg.sock"))
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	for i, server := range servers {
		l, err := listen(sockets[i])
		if err != nil {
			stop(servers)
			return err
		}
		ended.Go(func() { _ = server.Serve(l) })
	}
	<-ctx.Done()
	stop(servers)
	return nil
}

func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

func stop(servers []*grpc.Server) {
	for _, s := range servers {
		late := time.AfterFunc(stopsWithin, s.Stop)
		s.GracefulStop()
		late.Stop()
	}
}

// intercept journals a call, has it go wrong by order, and keeps calls for one volume apart.
func (d *Driver) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (resp any, err error) {
	method := filepath.Base(info.FullMethod)
	volume := volumeOf(req)
	end := d.journal.begin(method, volume, req)
	defer func() { end(resp, err) }()
	order := d.take(method)
	if err := order.before(ctx); err != nil {
		return nil, err
	}
	if volume != "" && changes(method) {
		if !d.begin(volume) {
			return nil, status.Errorf(codes.Aborted, "a call for volume %s is under way", volume)
		}
		defer d.end(volume)
	}
	resp, err = handler(ctx, req)
	order.after()
	return resp, err
}

func (d *Driver) begin(volume string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[volume] {
		return false
	}
	d.busy[volume] = true
	return true
}

func (d *Driver) end(volume string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, volume)
}

// volumeOf returns the id of the request's volume, or the name of one that is created.
func volumeOf(req any) string {
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case *csi.CreateVolumeRequest:
		return r.GetName()
	default:
		return ""
	}
}

func changes(method string) bool {
	switch method {
	case "NodeGetVolumeStats", "ValidateVolumeCapabilities":
		return false
	default:
		return true
	}
}

// registration tells an agent of the driver.
type registration struct {
	registerapi.UnsafeRegistrationServer
	d *Driver
}

func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (
	*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: r.d.config.Name,
		Endpoint: r.d.config.Socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registration) NotifyRegistrationStatus(_ context.Context,
	s *registerapi.RegistrationStatus) (
	*registerapi.RegistrationStatusResponse, error) {
	var err error
	if !s.GetPluginRegistered() {
		err = errors.New(s.GetError())
	}
	r.d.journal.begin("NotifyRegistrationStatus", "", nil)(nil, err)
	return &registerapi.RegistrationStatusResponse{}, nil
}
