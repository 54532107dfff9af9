package dra

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/gpu"
)

// Config configures New.
type Config struct {
	// Config is the plugin's. Dir, Follow and Divides are set by New.
	gpu.Config
	Options Options
	// Claims says where the driver serves. Driver, Node and Client have to be given.
	Claims dradriver.Config
}

// Driver is a driver of resource claims.
type Driver struct {
	*dradriver.Driver
	plugin  *gpu.Plugin
	options Options
	machine machine
}

// New returns a driver that Run serves.
func New(cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	divider, _ := cfg.Driver.(gpu.Divider)
	if cfg.Options.Dynamic && divider == nil {
		return nil, errors.New("--dra-mig=dynamic: this driver cannot make MIG devices")
	}
	cfg.Options.driver = cfg.Claims.Driver
	d := &Driver{options: cfg.Options,
		machine: machine{settings: cfg.Settings, divider: divider, log: cfg.Log}}
	claims := cfg.Claims
	claims.CDI, claims.Accept, claims.Based = cfg.Settings.CDI.Dir, checkParameters, true
	claims.Log = cfg.Log
	var err error
	none := d.inventoryOf(gpu.State{})
	if d.Driver, err = dradriver.New(claims, none.list(), none); err != nil {
		return nil, err
	}
	cfg.Follow, cfg.Divides = d.follow, cfg.Options.Dynamic
	d.plugin, err = gpu.New(cfg.Config)
	return d, err
}

func (d *Driver) inventoryOf(s gpu.State) inventory {
	out := inventoryOf(s, d.options, time.Now())
	out.machine = d.machine
	return out
}

// follow takes a state of the GPUs.
func (d *Driver) follow(s gpu.State) {
	next := d.inventoryOf(s)
	base, err := s.CommonEdits(d.machine.settings)
	if err != nil {
		d.machine.log("%v", err)
	}
	// It keeps NVIDIA's own runtime from adding GPUs that an image asks for.
	const void = "NVIDIA_VISIBLE_DEVICES=void"
	if !slices.Contains(base.Env, void) {
		base.Env = append(base.Env, void)
	}
	next.base = base
	d.Set(next.list(), next)
}

// Run serves until ctx is done. It fails if a driver of the same name serves the node.
func (d *Driver) Run(ctx context.Context) error { return d.Driver.Run(ctx, d.plugin.Run) }
