// Package agent is the node agent: it joins what watches, what decides and what acts.
// docs/architecture.md shows the road of a pod through it. join.go makes the domains and joins
// them; hollow.go joins the same domains to a runtime in memory.
package agent

import (
	"context"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/agent/upkeep"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology"
)

// Agent is a node agent. New makes one and changes only directories and sockets of its own; Run is
// its life.
type Agent struct {
	node      node
	host      host
	devices   deviceDomain
	resources resourceDomain
	contents  contentDomain
	health    healthDomain
	probes    probeDomain
	pods      podDomain
	stats     *stats.Collector
	evictions *eviction.Manager   // nil: there are no thresholds
	disks     *localstorage.Meter // what pods use of the node's disks
	upkeep    *upkeep.Upkeep
	run       order
}

// New reads the machine and the agent's state, reaches the runtime and listens on its sockets.
// An error says what to change.
func New(ctx context.Context, cfg *config.Config) (*Agent, error) {
	log := klog.FromContext(ctx)
	log.Info("Starting", "version", version.Get().String())
	n, h, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, name := range cfg.Unhonoured() {
		log.Info("Accepted without effect in this version", "option", name)
	}
	a, err := join(ctx, n, h)
	if err != nil {
		n.events.OnNode(v1.EventTypeWarning, "KubeletSetupFailed", err.Error())
		return nil, h.close(err)
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
	return a.host.close(group.Wait())
}

// adopt waits until it is known what runs, and aligns the records with it before anything is
// decided: running pods are adopted.
func (a *Agent) adopt(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{a.host.pleg.Synced(), a.devices.Ready()} {
		if !await.On(ctx, ready) {
			return nil
		}
	}
	a.host.adoptUsers(ctx)
	if err := a.upkeep.Rebuild(ctx); err != nil {
		return err
	}
	m := a.Machine()
	klog.FromContext(ctx).Info("Ready", "node", a.node.name, "machine", m.Name(),
		"cpus", m.Online(), "nodes", m.NodeSet())
	return nil
}

// announce tells systemd, if it started the agent, that the agent is ready, and when it begins to
// end (sd_notify(3)).
func announce(ctx context.Context) error {
	for _, state := range []string{daemon.SdNotifyReady, daemon.SdNotifyStopping} {
		if _, err := daemon.SdNotify(false, state); err != nil {
			klog.FromContext(ctx).Info("systemd was not told", "state", state, "err", err)
		}
		<-ctx.Done()
	}
	return nil
}

// Pods lists the pods of the node with their statuses.
func (a *Agent) Pods() []*v1.Pod { return a.pods.statuses.List() }

// Machine returns the node's hardware now.
func (a *Agent) Machine() *topology.Machine { return a.node.hardware.Get().Machine }

// Inventory returns what the device plugins offer now.
func (a *Agent) Inventory() devicemanager.Inventory { return a.devices.Inventory() }

// Free counts the free CPUs, memory and devices of each NUMA node.
func (a *Agent) Free(ctx context.Context) ([]explain.Supply, error) {
	s, err := a.pods.queue.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return s.Free(), nil
}

// Events returns the remembered events, the oldest first.
func (a *Agent) Events() []v1.Event { return a.node.events.List() }
