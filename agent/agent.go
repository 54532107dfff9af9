// Package agent is the node agent: it joins what watches, what decides and what acts.
// docs/architecture.md shows the road of a pod through it. open.go makes what the floors stand on, join.go
// the floors; hollow.go makes the same floors with a runtime in memory.
package agent

import (
	"context"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology"
)

// Agent is a node agent. New makes one and changes only directories and sockets of its own; Run is
// its life.
type Agent struct {
	floors
	run order
}

// New reads the machine and the agent's state, reaches the runtime and listens on its sockets.
// An error says what to change.
func New(ctx context.Context, cfg *config.Config) (*Agent, error) {
	log := klog.FromContext(ctx)
	log.Info("Starting", "version", version.Get().String())
	b, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, name := range cfg.Unhonoured() {
		log.Info("Accepted without effect in this version", "option", name)
	}
	a, err := join(ctx, b)
	if err != nil {
		b.events.OnNode(v1.EventTypeWarning, "KubeletSetupFailed", err.Error())
		return nil, b.host.Close(err)
	}
	return a, nil
}

// Run is the agent's life, until ctx ends or a part of it cannot go on. It returns when all its
// goroutines have. Containers keep running.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	part.Start(ctx, group, a.run.first)
	group.Go(func() error {
		if err := a.adopt(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		part.Start(ctx, group, a.run.then)
		return nil
	})
	return a.host.Close(group.Wait())
}

// adopt waits until it is known what runs, and aligns the records with it before anything is
// decided: running pods are adopted.
func (a *Agent) adopt(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{a.pleg.Synced(), a.placement.Plugins.Ready()} {
		if !await.On(ctx, ready) {
			return nil
		}
	}
	a.host.AdoptUsers(ctx, a.pleg.All())
	if err := a.upkeep.Rebuild(ctx); err != nil {
		return err
	}
	m := a.Machine()
	klog.FromContext(ctx).Info("Ready", "node", a.host.Name, "machine", m.Name(),
		"cpus", m.Online(), "nodes", m.NodeSet())
	return nil
}

// Pods lists the pods of the node with their statuses.
func (a *Agent) Pods() []*v1.Pod { return a.pods.List() }

// Machine returns the node's hardware now.
func (a *Agent) Machine() *topology.Machine { return a.host.Machine() }

// Inventory returns what the device plugins offer now.
func (a *Agent) Inventory() devicemanager.Inventory { return a.placement.Plugins.Inventory() }

// Placements says where every container of the node's pods is.
func (a *Agent) Placements() []assigned.Row { return a.serving.Placements() }

// Problems lists what is wrong now with manifests, device plugins and volumes.
func (a *Agent) Problems() []complaint.Problem { return a.serving.Problems() }

// Pressure says in a line for each condition of pressure what is short.
func (a *Agent) Pressure() []string { return a.evictions.ShortOf() }

// Free counts the free CPUs, memory and devices of each NUMA node.
func (a *Agent) Free(ctx context.Context) ([]explain.Supply, error) {
	s, err := a.pods.Queue.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return append(s.Free(), a.placement.Routes().Supplies()...), nil
}

// Changes returns a channel that wakes its reader when pods, what they hold, or what plugins offer changes.
func (a *Agent) Changes() <-chan struct{} {
	return mailbox.Subscribe(a.pods.Changes(), a.placement.Store.Changes(), a.placement.Offered)
}

// Events returns the remembered events, the oldest first.
func (a *Agent) Events() []v1.Event { return a.events.List() }
