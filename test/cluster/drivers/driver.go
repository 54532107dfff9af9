// Package drivers runs Kubernetes' test driver for resource claims beside an agent. A proxy stands
// in between, which records the agent's calls and can let them go wrong.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/internal/child"
)

// Config says which driver to run and where.
type Config struct {
	// Name is the driver's, as test.example.com. Devices is how many devices it has.
	Name    string
	Devices int
	// Instance tells instances of one driver on one node apart, as in a rolling update.
	Instance string
	// Binary is the driver's, Kubeconfig the user's that publishes its devices on Node.
	Binary, Kubeconfig, Node string
	// Dir is this instance's own, CDI that of its CDI files, Root the agent's root directory.
	Dir, CDI, Root string
}

// Driver is a driver with its proxy. Its methods but those of the proxy are for one goroutine.
type Driver struct {
	Proxy
	config  Config
	process *child.Server
}

// New returns a driver that does not run yet.
func New(c Config) (*Driver, error) {
	if c.Name == "" || c.Devices <= 0 {
		return nil, fmt.Errorf("driver %q with %d devices: it needs a name and devices", c.Name, c.Devices)
	}
	d := &Driver{Proxy: Proxy{instance: c.Instance}, config: c}
	for _, dir := range []string{d.own("registry"), d.own("plugins/" + c.Name), c.CDI,
		filepath.Join(c.Root, "plugins_registry"), filepath.Join(c.Root, "plugins", c.Name)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
	}
	d.process = &child.Server{Program: c.Binary, Log: d.own("log"), Args: []string{"kubelet-plugin",
		"--kubeconfig=" + c.Kubeconfig, "--drivername=" + c.Name, "--node-name=" + c.Node,
		fmt.Sprintf("--num-devices=%d", c.Devices), "--cdi-dir=" + c.CDI,
		"--plugin-registration-path=" + d.own("registry"), "--datadir=" + d.own("plugins"), "--v=4"}}
	return d, nil
}

func (d *Driver) own(name string) string {
	return filepath.Join(d.config.Dir, name)
}

// named returns the name of a socket of this instance.
func (d *Driver) named(before, after string) string {
	parts := []string{before, d.config.Instance, after}
	if d.config.Instance == "" {
		parts = []string{before, after}
	}
	return strings.Trim(strings.Join(parts, "-"), "-") + ".sock"
}

// Start starts the driver, and registers it with the agent when it serves.
func (d *Driver) Start(ctx context.Context) error {
	if err := d.process.Start(); err != nil {
		return err
	}
	own := d.own("registry") + "/" + d.config.Name + "-reg.sock"
	if err := d.awaitServing(ctx, own); err != nil {
		return err
	}
	return d.serve(sockets{
		registrar: own, driver: filepath.Join(d.own("plugins"), d.config.Name, "dra.sock"),
		registerAt: filepath.Join(d.config.Root, "plugins_registry", d.named(d.config.Name, "reg")),
		serves:     filepath.Join(d.config.Root, "plugins", d.config.Name, d.named("dra", "")),
	})
}

// startsWithin bounds a driver's start.
const startsWithin = time.Minute

func (d *Driver) awaitServing(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, startsWithin)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		_, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
		if err == nil {
			return nil
		}
		if err := errors.Join(d.process.Died(), ctx.Err()); err != nil {
			return fmt.Errorf("driver %s does not serve: %w", d.config.Name, err)
		}
		conn.ResetConnectBackoff()
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop stops the driver as if its pod was deleted: its sockets disappear.
func (d *Driver) Stop() error {
	err := d.close(true)
	if d.process.Exited() != nil {
		d.process.Stop()
	}
	return err
}

// Kill kills the driver: its sockets stay, but no process listens. Connections break.
func (d *Driver) Kill() error {
	if d.process.Exited() != nil {
		d.process.Kill()
	}
	return d.close(false)
}

// Name returns the driver's name.
func (d *Driver) Name() string { return d.config.Name }

// LogFile is the driver's log.
func (d *Driver) LogFile() string { return d.process.Log }
