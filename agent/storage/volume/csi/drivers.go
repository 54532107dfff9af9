package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
)

// Node holds what a driver says of this node.
type Node struct {
	Driver, NodeID string
	// MaxVolumes is how many of the driver's volumes the node can have; 0: there is no limit.
	MaxVolumes int64
	Topology   map[string]string
}

// equal reports whether two descriptions say the same.
func (n Node) equal(o Node) bool {
	return n.Driver == o.Driver && n.NodeID == o.NodeID && n.MaxVolumes == o.MaxVolumes &&
		maps.Equal(n.Topology, o.Topology)
}

// Drivers are the node's CSI drivers. Its methods are safe for concurrent use.
type Drivers struct {
	caller
	changed func() // Config.Changed
	tasks   await.Tasks

	mu      sync.Mutex // guards the fields below
	drivers map[string]*driver
	asked   map[string]bool // drivers that NodeGetInfo is being asked of again
	left    map[string]bool // drivers that were registered and are not
}

// driver is a registered driver. It is not changed, but replaced.
type driver struct {
	*peer
	socket  string
	version *version.Version
	node    Node
	since   time.Time
	storage *storage // guarded by Drivers.mu, and kept when the driver is replaced
}

// New returns drivers for Run. It fails if the metrics are registered twice.
func New(cfg Config) (*Drivers, error) {
	cfg = cfg.withDefaults()
	metrics := newInstruments()
	d := &Drivers{
		caller:  caller{cfg.Deadlines, metrics},
		changed: cfg.Changed, drivers: map[string]*driver{}, asked: map[string]bool{},
		left: map[string]bool{},
	}
	return d, metrics.Register(cfg.Registry)
}

// Run asks drivers what NodeInfo is called for, until ctx ends. Call it once.
func (d *Drivers) Run(ctx context.Context) error {
	d.tasks.Run(ctx)
	return nil
}

// Handler returns what admits plugins of the type CSIPlugin.
func (d *Drivers) Handler() watcher.Handler { return d.takeIn }

func (d *Drivers) takeIn(ctx context.Context, found watcher.Plugin) (*watcher.Membership, error) {
	highest, err := introduce(found)
	if err == nil {
		err = d.registered(found.Name).replaceableBy(highest)
	}
	if err != nil {
		return nil, &watcher.InvalidError{Err: err}
	}
	one := &driver{peer: &peer{driver: found.Name, endpoint: found.Endpoint}, socket: found.Socket,
		version: highest, since: time.Now()}
	if one.node, err = d.nodeInfo(ctx, one.peer); err == nil {
		err = d.register(one)
	}
	if err != nil {
		one.peer.leave()
		return nil, err
	}
	klog.FromContext(ctx).Info("CSI driver registered", "driver", found.Name, "endpoint",
		found.Endpoint, "version", highest, "nodeID", one.node.NodeID)
	d.changed()
	return &watcher.Membership{Leave: func() { d.leave(one) }}, nil
}

// replaceableBy refuses a second driver of the same name, as the kubelet does, unless it is newer.
func (one *driver) replaceableBy(to *version.Version) error {
	if one == nil || one.version.LessThan(to) {
		return nil
	}
	return fmt.Errorf("%s: RegisterPlugin for CSI driver %q failed. Another driver with the same "+
		"name is already registered with a higher supported version: %q", pluginName,
		one.node.Driver, one.version)
}

func (d *Drivers) register(one *driver) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.drivers[one.node.Driver]
	if err := old.replaceableBy(one.version); err != nil {
		return err
	}
	if one.storage = new(storage); old != nil {
		one.storage = old.storage
		old.peer.leave()
	}
	d.drivers[one.node.Driver] = one
	delete(d.left, one.node.Driver)
	return nil
}

// leave ends a registration, unless another one has replaced it.
func (d *Drivers) leave(one *driver) {
	one.peer.leave()
	if d.drop(one) {
		d.changed()
	}
}

func (d *Drivers) drop(one *driver) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := one.node.Driver
	if now := d.drivers[name]; now == nil || now.socket != one.socket || now.since != one.since {
		return false
	}
	delete(d.drivers, name)
	d.left[name] = true
	d.metrics.forgetStorage(name)
	return true
}

// check returns what is wrong with a driver's answer.
func (n Node) check() error {
	wrong := ""
	switch {
	case n.NodeID == "":
		wrong = "it has no node_id"
	case len(n.NodeID) > maxNodeID:
		wrong = fmt.Sprintf("its node_id has %d bytes, and may have %d", len(n.NodeID), maxNodeID)
	case n.MaxVolumes < 0:
		wrong = fmt.Sprintf("max_volumes_per_node is %d; 0 is for no limit", n.MaxVolumes)
	case len(n.Topology) > maxSegments:
		wrong = fmt.Sprintf("its topology has %d segments, and may have %d", len(n.Topology),
			maxSegments)
	default:
		return nil
	}
	return fmt.Errorf("the answer of CSI driver %s to NodeGetInfo cannot be used: %s", n.Driver,
		wrong)
}

// Nodes returns what the registered drivers say of the node, by their names.
func (d *Drivers) Nodes() []Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Node
	for _, name := range slices.Sorted(maps.Keys(d.drivers)) {
		out = append(out, d.drivers[name].node)
	}
	return out
}

// Registered reports whether a driver is registered.
func (d *Drivers) Registered(name string) bool { return d.registered(name) != nil }

func (d *Drivers) registered(name string) *driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drivers[name]
}

// Left reports whether a driver was registered since New, and is no longer.
func (d *Drivers) Left(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left[name]
}

// NodeInfo has a driver asked again what it says of the node. It does not wait for the answer;
// Changed is called if that is another one.
func (d *Drivers) NodeInfo(driver string) {
	one := d.askAgain(driver)
	if one == nil {
		return
	}
	d.tasks.Go(func(ctx context.Context) {
		said, err := d.nodeInfo(ctx, one.peer)
		if d.answered(one, said, err) {
			d.changed()
		}
		if err != nil {
			klog.FromContext(ctx).Info("CSI driver did not say anew what it calls the node",
				"driver", driver, "err", err)
		}
	})
}

// askAgain returns the driver to ask; nil: it is being asked, or not registered.
func (d *Drivers) askAgain(name string) *driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.drivers[name]
	if one == nil || d.asked[name] {
		return nil
	}
	d.asked[name] = true
	return one
}

// answered takes an answer of a driver that is still registered, and reports whether it is another
// one than before.
func (d *Drivers) answered(asked *driver, said Node, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := asked.node.Driver
	delete(d.asked, name)
	now := d.drivers[name]
	if err != nil || now != asked || now.node.equal(said) {
		return false
	}
	fresh := *now
	fresh.node = said
	d.drivers[name] = &fresh
	return true
}

// ErrNotRegistered tells a call to a driver that is not registered from other failures.
var ErrNotRegistered = errors.New("the CSI driver is not registered")

// notRegistered is ErrNotRegistered in the kubelet's words.
type notRegistered struct{ driver string }

func (e notRegistered) Error() string {
	return fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", e.driver)
}

func (notRegistered) Is(target error) bool { return target == ErrNotRegistered }
