package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/internal/await"
)

const (
	kubeletSocket    = "kubelet.sock"
	registerDeadline = 5 * time.Second
	registerAgain    = time.Second
)

// ErrCrashed is the error of Run after the order to crash: the sockets stay, as after a kill.
var ErrCrashed = errors.New("the plugin was told to crash")

// Causes of a new session.
var (
	errRestart = errors.New("told to restart")
	errAnew    = errors.New(kubeletSocket + " was made anew")
)

// Plugin is one device plugin.
type Plugin struct {
	cfg    Config
	state  *state
	orders chan error // errRestart or ErrCrashed, from the control socket
	log    *log.Logger
}

// New returns a plugin that Run serves.
func New(cfg Config) (*Plugin, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("simulated device plugin: %w", err)
	}
	state := newState(cfg)
	for _, f := range cfg.Faults {
		if err := state.setFault(f); err != nil {
			return nil, fmt.Errorf("simulated device plugin: %w", err)
		}
	}
	return &Plugin{
		cfg:    cfg,
		state:  state,
		orders: make(chan error),
		log:    state.log,
	}, nil
}

// Run serves the plugin until ctx is done. It waits for the kubelet's socket to appear, and begins
// a new session whenever it is made again.
func (p *Plugin) Run(ctx context.Context) error {
	// Watch before the first registration, so that no new socket is missed.
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch device plugin directory: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(p.cfg.Dir); err != nil {
		return fmt.Errorf("watch device plugin directory %s: %w", p.cfg.Dir, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	if p.cfg.Control != "" {
		listener, err := serve.Listen(p.cfg.Control)
		if err != nil {
			return err
		}
		group.Go(func() error { return p.serveControl(ctx, listener) })
	}
	group.Go(func() error {
		for {
			switch err := p.session(ctx, watcher); {
			case ctx.Err() != nil && !errors.Is(err, ErrCrashed):
				p.log.Print("stopped")
				return nil
			case errors.Is(err, errRestart), errors.Is(err, errAnew):
				p.log.Printf("beginning anew: %v", err)
			default:
				p.log.Printf("ending: %v", err)
				return err
			}
		}
	})
	return group.Wait()
}

// session serves and registers until it fails or a new session is due; the error says which.
func (p *Plugin) session(ctx context.Context, watcher *fsnotify.Watcher) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group, ctx := errgroup.WithContext(ctx)
	serving := make(chan struct{})
	late := p.state.hasFault(Serve)
	group.Go(func() error { return p.serve(ctx, serving) })
	group.Go(func() error {
		if !late && !await.On(ctx, serving) {
			return nil
		}
		if p.cfg.RegistryDir == "" {
			p.register(ctx)
		}
		return nil
	})
	why := p.wait(ctx, watcher)
	cancel(why)
	return errors.Join(why, group.Wait())
}

// wait returns when a new session is due.
func (p *Plugin) wait(ctx context.Context, watcher *fsnotify.Watcher) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case order := <-p.orders:
			return order
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletSocket {
				return errAnew
			}
		case err := <-watcher.Errors:
			p.log.Printf("watching %s: %v", p.cfg.Dir, err)
		}
	}
}

// serve serves v1beta1 until ctx is done; it closes serving when the plugin can be dialled. After a
// crash the socket stays.
func (p *Plugin) serve(ctx context.Context, serving chan<- struct{}) error {
	if _, err := p.state.misbehave(ctx, Serve); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	path := filepath.Join(p.cfg.Dir, p.cfg.Socket)
	listener, err := serve.Listen(path)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	v1beta1.RegisterDevicePluginServer(server, answers{plugin: p})
	lifecycle := serve.Lifecycle{
		Reasons: p.state.texts(func(d Device) string { return d.Reason }),
		Places:  p.state.texts(func(d Device) string { return d.PCI }),
	}
	if p.cfg.Released {
		lifecycle.Released = answers{plugin: p}.released
	}
	lifecycle.Register(server)
	if p.cfg.RegistryDir != "" {
		registerapi.RegisterRegistrationServer(server, introduction{plugin: p})
	}
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrCrashed) {
			listener.Abandon()
		}
		server.Stop()
	})()
	p.log.Printf("serving on %s", path)
	close(serving)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", path, err)
	}
	return nil
}

// register registers, with retries after refusals, until ctx is done.
func (p *Plugin) register(ctx context.Context) {
	for {
		err := p.registerOnce(ctx)
		switch {
		case err == nil:
			p.state.setRegistered()
			p.log.Printf("registered, serving on %s", p.cfg.Socket)
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, fs.ErrNotExist):
			p.log.Printf("waiting for %s to appear in %s", kubeletSocket, p.cfg.Dir)
			return // its creation begins a new session
		}
		p.log.Printf("registering: %v; trying again in %s", err, registerAgain)
		if !await.For(ctx, registerAgain) {
			return
		}
	}
}

func (p *Plugin) registerOnce(ctx context.Context) error {
	if _, err := p.state.called(ctx, Register); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	return serve.Register(ctx, p.cfg.Dir, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     p.cfg.Socket,
		ResourceName: p.cfg.Resource,
		Options:      p.options(),
	})
}

func (p *Plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{
		PreStartRequired:                p.cfg.PreStart,
		GetPreferredAllocationAvailable: !p.cfg.NoPreferred,
	}
}
