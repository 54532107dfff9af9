package eni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

// Intervals for what changes without an event.
const (
	lookEvery  = 30 * time.Second
	heldEvery  = 2 * time.Second
	countEvery = 30 * time.Second
	// pause collects a burst of changes.
	pause = 100 * time.Millisecond
	// watchAgain is the pause after netlink could not be followed.
	watchAgain = time.Second
)

func (c Config) every() (time.Duration, error) {
	if c.Every == "" {
		return countEvery, nil
	}
	d, err := time.ParseDuration(c.Every)
	if err != nil || d < time.Second {
		return 0, fmt.Errorf("every %q: write how often to count, 1s or more, such as 30s", c.Every)
	}
	return d, nil
}

// Plugin holds everything that runs.
type Plugin struct {
	cfg     Config
	keeper  *keeper
	outside *outside
	served  map[string]*serve.Plugin // by resource
	wake    chan struct{}
	telling sync.Mutex // guards outside and wrong
	wrong   complaint.Complaint[string]
	// missedFor is the constant, or less in tests.
	missedFor time.Duration
	ends      ends
}

// Run offers what the configuration says until ctx is done.
func Run(ctx context.Context, cfg Config) error {
	p, err := Open(ctx, cfg)
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	return p.Run(ctx)
}

// Open returns a plugin that is to run; nil: ctx has ended while another process kept the records.
func Open(ctx context.Context, cfg Config) (p *Plugin, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	var ends ends
	defer func() {
		if p == nil {
			ends.all()
		}
	}()
	if cfg.Kernel == nil {
		k, err := Netlink(cfg.Places)
		if err != nil {
			return nil, err
		}
		ends = append(ends, func() { _ = k.Close() }) // only read from
		cfg.Kernel, cfg.Mover = k, k
	}
	if len(cfg.Interfaces) > 0 {
		unlock, err := store{cfg.Places.State}.lock(ctx, cfg.Log)
		if ctx.Err() != nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		ends = append(ends, unlock)
	}
	if p, err = newPlugin(cfg); err == nil {
		p.ends = ends
	}
	return p, err
}

// ends give back what a plugin uses of the host.
type ends []func()

func (e ends) all() {
	for _, end := range e {
		end()
	}
}

// Close gives back what the plugin uses of the host, after Run.
func (p *Plugin) Close() { p.ends.all() }

func newPlugin(cfg Config) (*Plugin, error) {
	addresses, _ := cfg.addresses() // check has checked them
	k := &keeper{
		host:  Host{cfg.Kernel, cfg.Mover, sysfs{cfg.Places.Sysfs, cfg.Places.Dev}},
		rules: cfg.Interfaces, addresses: addresses, move: cfg.Move,
		store: store{cfg.Places.State}, own: Own{},
		news: news{cfg.Log, map[string]*complaint.Complaint[string]{}},
	}
	var err error
	if k.records, err = k.store.load(); errors.As(err, new(*asideError)) {
		cfg.Log.Print(err)
	} else if err != nil {
		return nil, err
	}
	p := &Plugin{
		cfg: cfg, keeper: k, served: map[string]*serve.Plugin{}, wake: make(chan struct{}, 1),
		missedFor: missedFor,
		outside:   &outside{cfg.Places.CDI, cfg.Places.Infos, cfg.Move, map[string]string{}},
	}
	if cfg.Claims == nil {
		p.serveInterfaces()
	}
	for _, c := range cfg.Counts {
		p.served[c.Resource] = serve.New(serve.Config{
			Dir: cfg.Places.Plugins, Resource: c.Resource, Log: cfg.Log.Printf,
			// The pod network picks one itself.
			Allocate: func(context.Context, []string) (*v1beta1.ContainerAllocateResponse, error) {
				return &v1beta1.ContainerAllocateResponse{}, nil
			},
		})
	}
	return p, nil
}

// serveInterfaces makes a device plugin of each resource of interfaces.
func (p *Plugin) serveInterfaces() {
	k := p.keeper
	for _, r := range p.cfg.Interfaces {
		c := serve.Config{
			Dir: p.cfg.Places.Plugins, Resource: r.Resource, Log: p.cfg.Log.Printf,
			Allocate: func(ctx context.Context, ids []string) (
				*v1beta1.ContainerAllocateResponse, error) {
				by, _ := holder.From(ctx) // the kubelet does not say
				resp, err := k.allocate(r.Resource, ids, by.UID)
				if err == nil && p.cfg.Move == ByRuntime {
					p.tell(ctx, sightOfPods{}, nil) // the runtime reads the names of what is handed out
				}
				return resp, err
			},
			Released: func(_ context.Context, ids []string, by holder.Holder) error {
				defer p.awake() // what was unhealthy while it was away is not any more
				return k.released(ids, by.UID)
			},
			Reasons: k.reasons, Places: k.places,
		}
		if p.cfg.Move == ByRuntime {
			c.Prepare = func(ctx context.Context, ids []string) error {
				by, _ := holder.From(ctx) // the kubelet does not say
				return k.prepare(ids, by.UID)
			}
		}
		p.served[r.Resource] = serve.New(c)
	}
}

// Run offers what the configuration says until ctx is done.
func (p *Plugin) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	serve := func(resource string) {
		group.Go(func() error { return p.served[resource].Run(ctx) })
	}
	for _, c := range p.cfg.Counts {
		group.Go(func() error {
			var wrong complaint.Complaint[string]
			n, _ := p.count(ctx, c, &wrong)
			serve(c.Resource) // with a list, if there is one
			p.recount(ctx, c, n, &wrong)
			return nil
		})
	}
	if len(p.cfg.Interfaces) > 0 {
		p.look(ctx)
		for _, resource := range offered(p.cfg.Interfaces) {
			if p.cfg.Claims == nil {
				serve(resource)
			}
		}
		group.Go(func() error { return p.follow(ctx) })
		group.Go(func() error {
			p.watch(ctx)
			return nil
		})
	}
	return group.Wait()
}

// awake makes follow look.
func (p *Plugin) awake() { await.Wake(p.wake) }

// watch wakes follow when netlink reports a change.
func (p *Plugin) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.cfg.Kernel.Watch(ctx, p.awake)
		if err != nil {
			p.cfg.Log.Print(err)
		}
		await.For(ctx, watchAgain)
	}
}

// follow looks when it is woken, and at intervals, shorter ones while a pod has an interface.
func (p *Plugin) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		every := lookEvery
		if p.keeper.busy() {
			every = heldEvery
		}
		select {
		case <-p.wake:
			await.For(ctx, pause)
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
		p.look(ctx)
	}
	return nil
}

// look updates what is offered. It logs an error once; the next look tries again.
func (p *Plugin) look(ctx context.Context) {
	pods := sightOfPods{asked: time.Now(), missedFor: p.missedFor}
	var err error
	if c := p.cfg.Claims; c != nil {
		if pods.held, err = c.Held(); err == nil {
			err = p.keeper.follow(listedBy(ctx, p.cfg.Places.PodResources))
		}
	} else if p.keeper.busy() {
		pods.held, err = heldBy(ctx, p.cfg.Places.PodResources, p.keeper.resources())
	}
	p.tell(ctx, pods, err)
}

// tell looks, and publishes the outcome in files and lists.
func (p *Plugin) tell(ctx context.Context, pods sightOfPods, problem error) {
	p.telling.Lock()
	defer p.telling.Unlock()
	offers, lookErr := p.keeper.look(pods)
	if c := p.cfg.Claims; c != nil && offers != nil {
		lookErr = errors.Join(lookErr, p.keeper.restore(), c.follow(offers))
		offers = nil
	}
	for resource, o := range offers {
		lookErr = errors.Join(lookErr, p.outside.write(resource, o.interfaces))
		p.served[resource].SetDevices(o.devices)
	}
	if ctx.Err() != nil {
		return
	}
	if text := complaint.Of(errors.Join(problem, lookErr)); p.wrong.Changes(text) {
		p.cfg.Log.Print(cmp.Or(text, "what was wrong before is right again"))
	}
}

// recount follows a count; the last number stays while a count fails.
func (p *Plugin) recount(ctx context.Context, c Count, n int, wrong *complaint.Complaint[string]) {
	every, _ := p.cfg.every() // check has checked it
	for await.For(ctx, every) {
		now, err := p.count(ctx, c, wrong)
		if err == nil && now != n {
			p.cfg.Log.Printf("%s: there are %d now, there were %d", c.Resource, now, n)
			n = now
		}
	}
}

// count asks for a count and offers it; it logs an error unless that lasts.
func (p *Plugin) count(ctx context.Context, c Count, wrong *complaint.Complaint[string]) (int,
	error) {
	n, err := c.ask(ctx, p.cfg.Metadata)
	if ctx.Err() == nil && wrong.Begins(complaint.Of(err)) {
		p.cfg.Log.Print(err)
	}
	if err != nil {
		return 0, err
	}
	p.served[c.Resource].SetDevices(counted(c.Resource, n))
	return n, nil
}
