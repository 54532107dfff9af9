package dradriver

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
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/internal/await"
)

// Config configures New.
type Config struct {
	// Driver is the driver's name, Node the node's, which is the pool's too.
	Driver, Node string
	// Root is the kubelet's root directory, with plugins and plugins_registry.
	Root string
	// CDI is the directory of CDI specs.
	CDI string
	// Client may read the node and its claims, and write its ResourceSlices.
	Client kubernetes.Interface
	// Program is the name of the process, in messages and of its lock file.
	Program string
	// Accept refuses opaque parameters that the driver cannot honour.
	Accept func(parameters []byte) error
	// Based: List has a Base.
	Based bool
	// Log says what happens. Optional.
	Log func(format string, args ...any)
}

func (c Config) validate() error {
	if len(c.Driver) > resourcev1.DriverNameMaxLength {
		return fmt.Errorf("--dra-driver %q is longer than %d characters", c.Driver,
			resourcev1.DriverNameMaxLength)
	}
	if wrong := validation.IsDNS1123Subdomain(c.Driver); wrong != nil {
		return fmt.Errorf("--dra-driver %q: %s", c.Driver, wrong[0])
	}
	if wrong := validation.IsDNS1123Subdomain(c.Node); wrong != nil {
		return fmt.Errorf("--node-name %q: %s", c.Node, wrong[0])
	}
	return nil
}

// Driver is a driver of resource claims.
type Driver struct {
	cfg   Config
	store store

	// work orders what changes records and devices.
	work sync.Mutex

	// changed has capacity 1 and says that there are new devices to publish.
	changed chan struct{}

	base *specs.ContainerEdits // as it is on disk; Set's

	mu  sync.Mutex
	now moment
	// newer is closed when now is replaced.
	newer chan struct{}
}

// moment holds devices and their list.
type moment struct {
	Devices
	list List
}

// New returns a driver. It publishes no devices before Set; list and first serve calls until then.
func New(cfg Config, list List, first Devices) (*Driver, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	return &Driver{cfg: cfg, changed: make(chan struct{}, 1), newer: make(chan struct{}),
		store: store{dir: cfg.CDI, driver: cfg.Driver, based: cfg.Based},
		now:   moment{first, list}}, nil
}

// Set replaces the devices and their list. Only one goroutine calls it. The edits that containers get
// besides a device are on disk then.
func (d *Driver) Set(list List, devices Devices) {
	if base := list.Base; d.cfg.Based && (d.base == nil || !reflect.DeepEqual(*d.base, base)) {
		if err := d.store.writeBase(base); err != nil {
			d.cfg.Log("%v", err)
		} else {
			d.base = &base
		}
	}
	d.mu.Lock()
	d.now = moment{devices, list}
	close(d.newer)
	d.newer = make(chan struct{})
	d.mu.Unlock()
	await.Wake(d.changed)
}

// current returns the devices, and a channel that is closed when there are newer ones.
func (d *Driver) current() (moment, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, d.newer
}

// Run serves until ctx is done or beside ends, which looks after the devices. It fails if a driver
// of the same name serves the node.
func (d *Driver) Run(ctx context.Context, beside func(context.Context) error) error {
	registry := filepath.Join(d.cfg.Root, "plugins_registry")
	data := filepath.Join(d.cfg.Root, "plugins", d.cfg.Driver)
	for _, dir := range []string{registry, data} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make the driver's directory: %w", err)
		}
	}
	lock := flock.New(filepath.Join(data, d.cfg.Program+".lock"))
	if got, err := lock.TryLock(); err != nil || !got {
		return errors.Join(fmt.Errorf("another %s is the driver %s of this node (%s is locked): "+
			"stop it, or name this one with --dra-driver", d.cfg.Program, d.cfg.Driver,
			lock.Path()), err)
	}
	defer func() { _ = lock.Unlock() }() // the end of the process unlocks it too
	if err := findRival(ctx, registry, d.cfg.Driver); err != nil {
		return err
	}
	d.dropStrange()
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.cfg.Driver), kubeletplugin.NodeName(d.cfg.Node),
		kubeletplugin.KubeClient(d.cfg.Client),
		kubeletplugin.RegistrarDirectoryPath(registry),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return fmt.Errorf("start the driver %s: %w", d.cfg.Driver, err)
	}
	defer helper.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return beside(ctx) })
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

// publish hands over the ResourceSlices whenever they differ.
func (d *Driver) publish(ctx context.Context, to publisher) error {
	var last resourceslice.DriverResources
	for await.On(ctx, d.changed) {
		now, _ := d.current()
		resources := now.list.Resources(d.cfg.Node)
		if reflect.DeepEqual(resources, last) {
			continue
		}
		err := to.PublishResources(ctx, *resources.DeepCopy())
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
	if _, dropped := errors.AsType[*resourceslice.DroppedFieldsError](err); dropped {
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
		if len(now.list.Devices) > 0 && !await.Send(ctx, reports, now.list.health(d.cfg.Node)) {
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
