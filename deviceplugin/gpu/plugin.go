package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/await"
)

// openAgain is the pause between attempts to open an absent driver.
const openAgain = 2 * time.Second

// Config configures New.
type Config struct {
	Driver   Driver
	Settings Settings
	// Dir is the kubelet's device plugin directory.
	Dir string
	// Interval is the time between readings of the GPUs; 0: 10 s. Events arrive at once.
	Interval time.Duration
	// Patience, added to Interval, bounds a call to the driver, after which the GPUs count as
	// unhealthy; 0: 30 s.
	Patience time.Duration
	// Registry takes the plugin's metrics; nil: there are none.
	Registry metrics.KubeRegistry
	// Follow takes each new state of the GPUs, in place of the servers of device plugins; nil: the
	// GPUs are offered as a device plugin does. It must not block.
	Follow func(State)
	// Divides: claims divide GPUs, so that a GPU in MIG mode need not be divided. Follow only.
	Divides bool
	// Log takes lines for people.
	Log func(format string, args ...any)
}

// Plugin offers the GPUs of a node.
type Plugin struct {
	cfg     Config
	watch   *watch
	serving *serving
	metrics *counts
}

// New returns a plugin that Run serves.
func New(cfg Config) (*Plugin, error) {
	if err := cfg.Settings.validate(); err != nil {
		return nil, err
	}
	cfg.Interval = cmp.Or(cfg.Interval, 10*time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	if cfg.Follow != nil {
		if err := cfg.Settings.forClaims(); err != nil {
			return nil, err
		}
		cfg.Settings.MIG = MIGMixed
		if cfg.Divides {
			cfg.Settings.MIG = migByClaims
		}
	}
	counts := newCounts()
	if err := counts.Register(cfg.Registry); err != nil {
		return nil, err
	}
	return &Plugin{
		cfg: cfg, metrics: counts, serving: newServing(cfg),
		watch: &watch{rules: cfg.Settings.Health, log: cfg.Log, counts: counts,
			histories: map[part]history{}},
	}, nil
}

// Run offers GPUs until ctx is done. If there is no driver, it waits for one.
func (p *Plugin) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	p.serving.ctx, p.serving.group = ctx, group
	group.Go(func() error {
		defer p.serving.end()
		return p.run(ctx)
	})
	return group.Wait()
}

func (p *Plugin) run(ctx context.Context) error {
	said := ""
	for first := true; ctx.Err() == nil; first = false {
		err := p.session(ctx)
		if errors.Is(err, ErrAbandoned) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if first && p.cfg.Settings.FailOnInit && p.watch.last == nil {
			return fmt.Errorf("%w; --fail-on-init-error=false waits for it", err)
		}
		if text := err.Error(); text != said {
			p.cfg.Log("%s; looking again every %s", text, openAgain)
			said = text
		}
		p.watch.gone(err)
		p.publish()
		await.For(ctx, openAgain)
	}
	return nil
}

// session follows the driver until it is gone; the error says why.
func (p *Plugin) session(ctx context.Context) (err error) {
	session, err := within(ctx, p, p.cfg.Driver.Open)
	if err != nil {
		return err
	}
	defer func() {
		if !errors.Is(err, ErrAbandoned) { // else a call is still in the driver
			session.Close()
		}
	}()
	for {
		began := time.Now()
		snapshot, err := within(ctx, p, session.Read)
		if err != nil {
			return err
		}
		p.watch.read(snapshot, time.Now())
		p.watch.began = began
		p.publish()
		next := time.Now().Add(p.cfg.Interval)
		for due := false; !due; {
			type outcome struct {
				event Event
				found bool
			}
			got, err := within(ctx, p, func() (outcome, error) {
				event, found, err := session.Wait(ctx, max(0, time.Until(next)))
				return outcome{event, found}, err
			})
			if err != nil {
				return err
			}
			if got.found && p.watch.event(got.event, time.Now()) {
				p.publish()
			}
			due = got.found || time.Until(next) <= 0 // after an event the GPUs are read at once
		}
	}
}

// publish offers the present devices.
func (p *Plugin) publish() {
	all, snapshot := p.watch.offers(p.cfg.Settings)
	p.metrics.tell(all, p.watch.up())
	if p.cfg.Follow != nil {
		p.cfg.Follow(p.watch.state())
		return
	}
	if err := p.serving.publish(all, snapshot); err != nil {
		p.cfg.Log("%v", err)
	}
}

var errHangs = errors.New("the driver does not answer")

// ErrAbandoned says that the plugin ended during a call that the driver never answered: this
// process cannot open another session.
var ErrAbandoned = errors.New("the driver has not answered a call")

// lastCall bounds the wait for a call when the plugin ends. Waiting for events takes at most a
// second.
const lastCall = 3 * time.Second

// within runs a call to the driver, which may never return. While it hangs, the GPUs are unhealthy;
// its late answer still counts. If it does not return soon after the end of ctx, within leaves its
// goroutine behind, since nothing can end it, and returns ErrAbandoned.
func within[T any](ctx context.Context, p *Plugin, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	late := time.NewTimer(p.cfg.Patience + p.cfg.Interval)
	defer late.Stop()
	for {
		select {
		case r := <-done:
			return r.value, r.err
		case <-late.C:
			p.cfg.Log("%v for %s", errHangs, p.cfg.Patience+p.cfg.Interval)
			p.watch.gone(errHangs)
			p.publish()
		case <-ctx.Done():
			var none T
			select {
			case <-done:
				return none, ctx.Err()
			case <-time.After(lastCall):
				return none, ErrAbandoned
			}
		}
	}
}
