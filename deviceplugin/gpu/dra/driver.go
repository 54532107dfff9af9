package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/internal/await"
)

// Config configures New.
type Config struct {
	// Config is the plugin's. Dir, Follow and Divides are set by New.
	gpu.Config
	Options Options
	// Root is the kubelet's root directory, with plugins and plugins_registry.
	Root string
	// Client may read the node and its claims, and write its ResourceSlices.
	Client kubernetes.Interface
}

// Driver is a driver of resource claims.
type Driver struct {
	cfg     Config
	plugin  *gpu.Plugin
	store   store
	divider gpu.Divider // nil: the driver cannot make MIG devices

	// work orders what changes records and MIG devices.
	work sync.Mutex

	// changed has capacity 1 and says that there is a new inventory to publish.
	changed chan struct{}

	mu  sync.Mutex
	now inventory
	// newer is closed when now is replaced.
	newer chan struct{}
}

// New returns a driver that Run serves.
func New(cfg Config) (*Driver, error) {
	if err := cfg.Options.validate(); err != nil {
		return nil, err
	}
	d := &Driver{changed: make(chan struct{}, 1), newer: make(chan struct{}),
		store: store{dir: cfg.Settings.CDI.Dir, driver: cfg.Options.Driver},
		now:   inventory{Options: cfg.Options}}
	d.divider, _ = cfg.Driver.(gpu.Divider)
	if cfg.Options.Dynamic && d.divider == nil {
		return nil, errors.New("--dra-mig=dynamic: this driver cannot make MIG devices")
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	cfg.Follow, cfg.Divides = d.follow, cfg.Options.Dynamic
	plugin, err := gpu.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	d.cfg, d.plugin = cfg, plugin
	return d, nil
}

// follow takes a state of the GPUs.
func (d *Driver) follow(s gpu.State) {
	next := inventoryOf(s, d.cfg.Options, time.Now())
	d.mu.Lock()
	d.now = next
	close(d.newer)
	d.newer = make(chan struct{})
	d.mu.Unlock()
	await.Wake(d.changed)
}

func (d *Driver) inventory() inventory {
	now, _ := d.current()
	return now
}

// current returns the inventory, and a channel that is closed when there is a newer one.
func (d *Driver) current() (inventory, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, d.newer
}

// Run serves until ctx is done. It fails if a driver of the same name serves the node.
func (d *Driver) Run(ctx context.Context) error {
	registry := filepath.Join(d.cfg.Root, "plugins_registry")
	data := filepath.Join(d.cfg.Root, "plugins", d.cfg.Options.Driver)
	for _, dir := range []string{registry, data} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make the driver's directory: %w", err)
		}
	}
	lock := flock.New(filepath.Join(data, "numalet-gpu.lock"))
	if got, err := lock.TryLock(); err != nil || !got {
		return errors.Join(fmt.Errorf("another numalet-gpu is the driver %s of this node (%s is "+
			"locked): stop it, or name this one with --dra-driver", d.cfg.Options.Driver,
			lock.Path()), err)
	}
	defer func() { _ = lock.Unlock() }() // the end of the process unlocks it too
	if err := findRival(ctx, registry, d.cfg.Options.Driver); err != nil {
		return err
	}
	d.dropStrange()
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.cfg.Options.Driver), kubeletplugin.NodeName(d.cfg.Options.Node),
		kubeletplugin.KubeClient(d.cfg.Client),
		kubeletplugin.RegistrarDirectoryPath(registry),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return fmt.Errorf("start the driver %s: %w", d.cfg.Options.Driver, err)
	}
	defer helper.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.plugin.Run(ctx) })
	group.Go(func() error { return d.publish(ctx, helper) })
	group.Go(func() error {
		d.releaseGone(ctx)
		return nil
	})
	return group.Wait()
}

// dropStrange removes files with a record's name that hold none.
func (d *Driver) dropStrange() {
	_, strange, err := d.store.load()
	if err != nil {
		d.cfg.Log("%v", err)
	}
	for _, name := range strange {
		d.cfg.Log("%s is not the CDI spec of a claim, and is removed",
			filepath.Join(d.store.dir, name))
		if err := os.Remove(filepath.Join(d.store.dir, name)); err != nil {
			d.cfg.Log("%v", err)
		}
	}
}

// publisher is the part of kubeletplugin.Helper that publish needs.
type publisher interface {
	PublishResources(ctx context.Context, resources resourceslice.DriverResources) error
}

// publish writes the CDI spec of the driver's files and hands over the ResourceSlices whenever they
// differ.
func (d *Driver) publish(ctx context.Context, to publisher) error {
	var last resourceslice.DriverResources
	var base *specs.ContainerEdits
	for await.On(ctx, d.changed) {
		now := d.inventory()
		common, err := now.state.CommonEdits(d.cfg.Settings)
		if err == nil && (base == nil || !reflect.DeepEqual(*base, common)) {
			if err = d.store.writeBase(common); err == nil {
				base = &common
			}
		}
		if err != nil {
			d.cfg.Log("%v", err)
		}
		resources := now.resources()
		if reflect.DeepEqual(resources, last) {
			continue
		}
		err = to.PublishResources(ctx, *resources.DeepCopy())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("publish ResourceSlices: %w", err)
		}
		last = resources
	}
	return nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (d *Driver) HandleError(_ context.Context, err error, what string) {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		d.cfg.Log("the API server dropped fields of ResourceSlices: its feature gates for "+
			"partitionable devices, device taints or consumable capacity are off: %v", err)
		return
	}
	d.cfg.Log("%s: %v", what, err)
}

// healthAgain is the time between reports of health, which count for 30 s.
const healthAgain = 10 * time.Second

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (d *Driver) WatchHealthStatus(ctx context.Context,
	reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		now, newer := d.current()
		if len(now.devices) > 0 && !await.Send(ctx, reports, now.health()) {
			return nil
		}
		select {
		case <-newer:
		case <-time.After(healthAgain):
		case <-ctx.Done():
			return nil
		}
	}
}
