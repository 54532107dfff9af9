package devicemanager

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/internal/await"
)

// Plugins manages all device plugins. Its methods are safe for concurrent use.
type Plugins struct {
	cfg     Config
	metrics *instruments
	ready   chan struct{}
	events  chan event
	table   *table // owned by Run
	calm    calm   // owned by Run
	current atomic.Pointer[view]
}

// New returns a device manager that knows only remembered plugins; Run lets plugins register. It
// fails if Dirs.Plugins is empty or the metrics are registered twice.
func New(cfg Config) (*Plugins, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plugins{
		cfg:     cfg,
		metrics: newInstruments(),
		ready:   make(chan struct{}),
		events:  make(chan event),
		table:   restore(cfg, time.Now()),
	}
	if err := p.metrics.Register(cfg.Registry); err != nil {
		return nil, err
	}
	v := p.table.view(0)
	p.current.Store(v)
	p.metrics.show(v.inventory)
	return p, nil
}

// Inventory returns the current snapshot.
func (p *Plugins) Inventory() Inventory { return p.current.Load().inventory }

// Ready returns a channel that is closed once plugins can register.
func (p *Plugins) Ready() <-chan struct{} { return p.ready }

// Run serves registration and follows plugins until ctx is done. It first clears the directory
// (clearDir), so that plugins register again. Call it once.
func (p *Plugins) Run(ctx context.Context) error {
	if err := clearDir(p.cfg.Dirs.Plugins); err != nil {
		return err
	}
	s, err := listen(p.cfg.Dirs.Plugins)
	if err != nil {
		return err
	}
	settings := linkSettings{p.cfg, p.events, p.metrics}
	doors := registrar{settings}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return doors.serve(ctx, s) })
	group.Go(func() error { return doors.watch(ctx) })
	group.Go(func() error {
		p.loop(ctx, group, settings)
		return nil
	})
	return group.Wait()
}

// loop owns the table and starts the goroutines of links in group. It never waits for a plugin.
func (p *Plugins) loop(ctx context.Context, group *errgroup.Group, settings linkSettings) {
	start := func(l *link) {
		linkCtx, cancel := context.WithCancel(ctx)
		l.cancel = cancel
		group.Go(func() error {
			defer cancel()
			l.run(linkCtx, settings)
			return nil
		})
	}
	t, lists := p.table, p.cfg.Before.Lists
	for _, r := range t.records {
		start(r.link)
	}
	health := healthSaid{}
	due := await.At(p.publish(ctx, health)) // the next time to publish held-back news
	close(p.ready)
	touch := time.NewTicker(recall.TouchPeriod)
	defer touch.Stop()
	defer func() { lists.Touch(ctx, t.remembered()) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-touch.C:
			lists.Touch(ctx, t.remembered())
		case <-due:
			due = await.At(p.publish(ctx, health))
		case e := <-p.events:
			superseded := t.apply(e)
			if m := e.complaints(); m != nil && (e.kind == linkLost || e.kind == linkClosed) {
				m.lost(time.Now())
			}
			if e.kind == linkRegistered {
				e.link.tellOf(ctx, e.link.behavior.complaints.Load().registered(time.Now()))
				start(e.link)
			}
			for _, l := range superseded {
				klog.FromContext(ctx).V(2).Info("Device plugin registration superseded",
					"resource", l.resource, "socket", l.socket)
				l.cancel()
			}
			if e.kind == resourceRecordoned {
				p.calm.forget(e.resource)
			}
			due = await.At(p.publish(ctx, health))
			if e.seen != nil {
				close(e.seen)
			}
		}
	}
}

// publish first remembers the table's content, then shows it to readers and wakes them if anything
// changed for them: the list of a plugin behind another one means nothing to them. News is
// published even if it cannot be remembered. due is the time to publish held-back news; zero: none
// is held back.
func (p *Plugins) publish(ctx context.Context, health healthSaid) (due time.Time) {
	before, at := p.current.Load(), time.Now()
	now := p.table.view(before.inventory.Version + 1)
	health.follow(now.inventory, func(resource string, devices []*Device) {
		p.metrics.healthChanged(resource, devices)
		l := now.links[resource]
		l.tellOf(ctx, l.behavior.complaints.Load().healthChanged(at, devices))
	})
	held, due := p.calm.hold(now, before, at)
	p.cfg.Before.Lists.Keep(ctx, p.table.remembered(), held)
	if now.says(before) {
		return due
	}
	p.current.Store(now)
	p.metrics.show(now.inventory)
	p.cfg.Changed()
	return due
}
