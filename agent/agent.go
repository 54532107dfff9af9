// Package agent is the node agent: it brings together what watches, what decides and what acts.
// docs/architecture.md shows the road of a pod through it; join.go makes and joins the parts.
package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/version"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology"
)

// Agent is a node agent. New makes it and changes nothing but directories and sockets of its own;
// Run is its life.
type Agent struct {
	node  node
	parts parts
}

// part is a goroutine of the agent, or several. Run returns only when all of them have.
type part struct {
	name string
	run  func(context.Context) error
}

// New reads the machine and the agent's state, reaches the runtime and listens on its sockets.
// An error says what to change.
func New(ctx context.Context, cfg *config.Config) (*Agent, error) {
	log := klog.FromContext(ctx)
	log.Info("Starting", "version", version.Get().String())
	n, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, name := range cfg.Unhonoured() {
		log.Info("Accepted without effect in this version", "option", name)
	}
	p, err := join(ctx, n)
	if err != nil {
		n.events.OnNode(v1.EventTypeWarning, "KubeletSetupFailed", err.Error())
		return nil, errors.Join(err, n.client.Close())
	}
	return &Agent{n, p}, nil
}

// Run is the agent's life, until ctx ends or a part of it cannot go on. It returns when all its
// goroutines have. Containers keep running.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	start := func(parts []part) {
		for _, p := range parts {
			group.Go(func() error {
				if err := p.run(ctx); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				return nil
			})
		}
	}
	start(a.parts.run.first)
	group.Go(func() error {
		if err := a.adopt(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		start(a.parts.run.then)
		return nil
	})
	return errors.Join(group.Wait(), a.node.client.Close())
}

// adopt waits until it is known what runs, and brings what is recorded in line with it, before
// anything is decided: pods that run are adopted.
func (a *Agent) adopt(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{a.parts.observer.Synced(), a.parts.plugins.Ready()} {
		if !await.On(ctx, ready) {
			return nil
		}
	}
	if err := a.parts.checkpoints.Rebuild(ctx); err != nil {
		return err
	}
	m := a.Machine()
	klog.FromContext(ctx).Info("Ready", "node", a.node.name, "machine", m.Name(),
		"cpus", m.Online(), "nodes", m.NodeSet())
	return nil
}

// announced has systemd know, if it started the agent, that run has begun and that it has ended
// (sd_notify(3)).
func announced(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		notify(ctx, daemon.SdNotifyReady)
		defer notify(ctx, daemon.SdNotifyStopping)
		return run(ctx)
	}
}

func notify(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		klog.FromContext(ctx).Info("systemd was not told", "state", state, "err", err)
	}
}

// Pods lists the pods of the node with their statuses.
func (a *Agent) Pods() []*v1.Pod { return a.parts.statuses.List() }

// Machine is the node's hardware now.
func (a *Agent) Machine() *topology.Machine { return a.node.hardware.Get().Machine }

// Inventory is what the device plugins offer now.
func (a *Agent) Inventory() devicemanager.Inventory { return a.parts.plugins.Inventory() }

// Free counts what no pod has of what the node hands out by NUMA node.
func (a *Agent) Free(ctx context.Context) ([]explain.Supply, error) {
	s, err := a.parts.queue.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return s.Free(), nil
}

// Events are those that are remembered, the oldest first.
func (a *Agent) Events() []v1.Event { return a.node.events.List() }

// Problems lists what is wrong with manifests now, by source and name, and then with device plugins,
// by resource.
func (a *Agent) Problems() []source.Problem { return problems(a.parts) }

// Placements says where every container of the node's pods is.
func (a *Agent) Placements() []placement.Row { return placements(a.node, a.parts) }
