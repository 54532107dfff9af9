package dra

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
)

// Drivers are the node's DRA drivers. Its methods are safe for concurrent use.
type Drivers struct {
	cfg     Config
	metrics *instruments
	tasks   await.Tasks
	voices  voices

	mu       sync.Mutex // guards the fields below, and the instances'
	drivers  map[string]*driver
	admitted uint64 // instances so far
}

// driver holds what is known under one name.
type driver struct {
	name      string
	instances []*instance // oldest first
	tally     tally
	// away is the time since when the driver has no usable plugin; zero: it has one.
	away time.Time
	// calm cancels the wait for the driver to be gone; nil: there is none.
	calm context.CancelFunc
}

// Bounds of what is kept in memory for programs that can make sockets in the plugin registry.
const (
	maxInstances = 16 // of a driver
	maxAway      = 64 // drivers without any instance
)

// New returns drivers for Run. It fails if the metrics are registered twice.
func New(cfg Config) (*Drivers, error) {
	d := &Drivers{
		cfg: cfg.withDefaults(), metrics: newInstruments(), drivers: map[string]*driver{},
	}
	d.voices = voices{tell: d.cfg.Health, speaking: map[string][]*instance{}}
	return d, d.metrics.Register(cfg.Registry)
}

// Run keeps the connections to plugins until ctx is done. Call it once.
func (d *Drivers) Run(ctx context.Context) error {
	d.tasks.Run(ctx)
	return nil
}

// Handler returns what admits plugins of the type DRAPlugin.
func (d *Drivers) Handler() watcher.Handler { return d.takeIn }

func (d *Drivers) takeIn(ctx context.Context, found watcher.Plugin) (*watcher.Membership, error) {
	in, err := introduce(found)
	if err != nil {
		return nil, &watcher.InvalidError{Err: err}
	}
	one, err := d.add(in)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("DRA driver registered", "driver", in.driver, "endpoint",
		in.endpoint, "service", in.service, "health", in.health)
	return &watcher.Membership{Leave: func() { one.leave() }}, nil
}

// add admits an instance. It is used once it is connected.
func (d *Drivers) add(intro introduction) (*instance, error) {
	in := &instance{introduction: intro, drivers: d}
	l, err := d.newLink(intro)
	if err != nil {
		return nil, fmt.Errorf("create gRPC connection to DRA driver %s plugin at endpoint %s: %w",
			in.driver, in.endpoint, err)
	}
	in.link = l
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[in.driver]
	if of == nil {
		d.forgetLocked()
		of = &driver{name: in.driver, away: time.Now()}
		d.drivers[in.driver] = of
	}
	for _, other := range of.instances {
		if other.endpoint == in.endpoint {
			l.HangUp()
			return nil, fmt.Errorf("endpoint %s already registered for DRA driver plugin %s",
				in.endpoint, in.driver)
		}
	}
	if len(of.instances) == maxInstances {
		l.HangUp()
		return nil, fmt.Errorf("DRA driver plugin %s has %d instances already: remove the sockets of "+
			"those that do not run any more from the plugin registry", in.driver, maxInstances)
	}
	d.admitted++
	in.number = d.admitted
	of.instances = append(of.instances, in)
	in.stop = d.tasks.Go(func(ctx context.Context) { in.run(ctx) })
	d.watchAwayLocked(of)
	return in, nil
}

// leave ends an instance. The calls that it has are answered.
func (in *instance) leave() {
	d := in.drivers
	if l := in.takeOff(); l != nil {
		l.HangUp()
		d.cfg.Changed()
	}
}

// takeOff takes an instance off the table and returns its connection; nil: it was done before.
func (in *instance) takeOff() *link {
	d := in.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[in.driver]
	if of == nil || !slices.Contains(of.instances, in) {
		return nil
	}
	of.instances = slices.DeleteFunc(of.instances, func(o *instance) bool { return o == in })
	in.connected = false
	in.stop()
	d.weighLocked(of)
	return in.link
}

// noteState notes whether an instance is connected.
func (in *instance) noteState(ctx context.Context, is bool) {
	d := in.drivers
	if in.setConnected(is) {
		klog.FromContext(ctx).Info("Connection to DRA driver changed", "connected", is)
		d.cfg.Changed()
	}
}

func (in *instance) setConnected(is bool) (changed bool) {
	d := in.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[in.driver]
	if of == nil || in.connected == is || !slices.Contains(of.instances, in) {
		return false
	}
	in.connected = is
	d.weighLocked(of)
	return true
}

// weighLocked begins and ends the time without a usable plugin.
func (d *Drivers) weighLocked(of *driver) {
	switch usable := of.usable(); {
	case usable && of.calm != nil:
		of.calm()
		of.calm, of.away = nil, time.Time{}
	case usable:
		of.away = time.Time{}
	case of.away.IsZero():
		of.away = time.Now()
		d.watchAwayLocked(of)
	}
}

// watchAwayLocked waits for an unusable driver to be gone, unless that goes on already.
func (d *Drivers) watchAwayLocked(of *driver) {
	if of.usable() || of.calm != nil {
		return
	}
	since := of.away
	of.calm = d.tasks.Go(func(ctx context.Context) {
		if await.For(ctx, d.cfg.Deadlines.Gone) && d.isGone(of, since) {
			klog.FromContext(ctx).Info("DRA driver has no usable plugin", "driver", of.name,
				"for", d.cfg.Deadlines.Gone)
			d.cfg.Gone(of.name)
		}
	})
}

// isGone reports whether a driver is still unusable, and was never usable since then.
func (d *Drivers) isGone(of *driver, since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !of.away.Equal(since) {
		return false
	}
	of.calm = nil
	return true
}

// forgetLocked makes room for another driver.
func (d *Drivers) forgetLocked() {
	var oldest *driver
	away := 0
	for _, of := range d.drivers {
		if len(of.instances) > 0 || of.calm != nil {
			continue
		}
		if away++; oldest == nil || of.away.Before(oldest.away) {
			oldest = of
		}
	}
	if away >= maxAway {
		delete(d.drivers, oldest.name)
	}
}

// replace makes another connection that of an instance. False: the instance has left.
func (in *instance) replace(l *link) bool {
	d := in.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[in.driver]
	if of == nil || !slices.Contains(of.instances, in) {
		return false
	}
	in.link = l
	return true
}

// Usable reports whether a plugin of the driver is connected.
func (d *Drivers) Usable(driver string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[driver]
	return of != nil && of.usable()
}

// AllUsable returns the names of drivers with a connected plugin, sorted.
func (d *Drivers) AllUsable() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for name, of := range d.drivers {
		if of.usable() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (of *driver) usable() bool {
	return slices.ContainsFunc(of.instances, func(in *instance) bool { return in.connected })
}

// newest returns the instance that is called: the newest connected one, or else the newest; nil:
// there is none.
func (of *driver) newest() (in *instance) {
	for _, one := range of.instances {
		if in == nil || one.connected || !in.connected {
			in = one
		}
	}
	return in
}
