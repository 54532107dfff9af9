// Package agent is the node agent: it brings together what watches, what decides and what acts.
// docs/architecture.md shows the road of a pod through it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/podresources"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/version"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// Agent is a node agent. New makes it and changes nothing but directories and sockets of its own;
// Run is its life.
type Agent struct {
	cfg     *config.Config
	facts   facts
	client  *cri.Client
	store   *allocation.Store
	plugins *deviceplugin.Plugins

	observer *lifecycle.Observer
	queue    *admission.Queue
	pool     *cpupool.Pool
	workers  *podworker.Workers
	mux      *source.Mux
	pods     *pods
	parts    parts
}

// parts are the goroutines beside those named in Agent.
type parts struct {
	loop     *loop
	chores   *chores
	health   *deviceHealth
	server   *server.Server
	problems *problems
	registry metrics.KubeRegistry
	measures *measures
	offline  offlineCPUs // the chores' own

	podResources *podresources.Server
}

// New reads the machine and the agent's state, reaches the runtime and listens on its sockets.
// An error says what to change.
func New(ctx context.Context, cfg *config.Config) (*Agent, error) {
	log := klog.FromContext(ctx)
	log.Info("Starting", "version", version.Get().String())
	if err := checkHost(ctx, cfg); err != nil {
		return nil, err
	}
	if err := makeDirs(cfg); err != nil {
		return nil, err
	}
	f, err := readFacts(cfg)
	if err != nil {
		return nil, err
	}
	for _, name := range cfg.Unhonoured() {
		log.Info("Accepted without effect in this version", "option", name)
	}
	a := &Agent{cfg: cfg, facts: f}
	if a.facts.hardware, err = openMachine(cfg, a.machineChanged); err != nil {
		return nil, err
	}
	if a.client, err = connect(ctx, cfg); err != nil {
		return nil, err
	}
	if err := a.openStore(ctx); err != nil {
		return nil, errors.Join(err, a.client.Close())
	}
	if err := a.assemble(ctx); err != nil {
		return nil, errors.Join(err, a.client.Close())
	}
	return a, nil
}

// Run is the agent's life, until ctx ends or a part of it cannot go on. It returns when all its
// goroutines have. Containers keep running.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	start := func(name string, run func(context.Context) error) {
		group.Go(func() error {
			if err := run(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	start("assignment store", a.store.Run)
	start("device plugins", a.plugins.Run)
	start("runtime observer", a.observer.Run)
	start("admission", a.queue.Run)
	start("pod workers", a.workers.Run)
	start("chores", a.parts.chores.run)
	start("device health", a.parts.health.run)
	start("http server", a.parts.server.Run)
	start("pod resources", a.parts.podResources.Run)
	start("syncLoop", func(ctx context.Context) error {
		// What runs is known before anything is decided: pods that run are adopted.
		for _, ready := range []<-chan struct{}{a.observer.Synced(), a.plugins.Ready()} {
			select {
			case <-ctx.Done():
				return nil
			case <-ready:
			}
		}
		if err := a.rebuild(ctx); err != nil {
			return err
		}
		// Before that CPUs that containers have for themselves may look free, and the kubelet's
		// files, which a change of the machine has written anew, may not have been read.
		start("cpu pool", a.pool.Run)
		start("machine", a.facts.hardware.Run)
		start("pod sources", a.mux.Run)
		notify(ctx, daemon.SdNotifyReady)
		klog.FromContext(ctx).Info("Ready", "node", a.facts.name, "machine", a.Machine().Name(),
			"cpus", a.Machine().Online(), "nodes", a.Machine().NodeSet())
		defer notify(ctx, daemon.SdNotifyStopping)
		return a.parts.loop.run(ctx)
	})
	return errors.Join(group.Wait(), a.client.Close())
}

// notify tells systemd, if it started the agent (sd_notify(3)).
func notify(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		klog.FromContext(ctx).Info("systemd was not told", "state", state, "err", err)
	}
}

// Pods lists the pods of the node with their statuses.
func (a *Agent) Pods() []*v1.Pod { return a.pods.list() }

// Machine is the node's hardware now.
func (a *Agent) Machine() *topology.Machine { return a.facts.hardware.Get().Machine }

// Inventory is what the device plugins offer now.
func (a *Agent) Inventory() deviceplugin.Inventory { return a.plugins.Inventory() }

// Problems lists what is wrong with manifests now, by source and name.
func (a *Agent) Problems() []source.Problem { return a.parts.problems.list() }

// Placements says where every container of the node's pods is.
func (a *Agent) Placements() []placement.Row {
	return placement.Rows(placement.Input{
		Hardware: a.facts.hardware.Get(), Pods: a.pods.list(), Assigned: a.store.State(),
		Shared: a.shared(),
	})
}

// shared is where containers without CPUs of their own run.
func (a *Agent) shared() cpuset.CPUSet { return a.pool.Shared() }

// healthy reports whether the syncLoop comes round.
func (a *Agent) healthy(now time.Time) error {
	limit := max(2*a.cfg.Kubelet.SyncFrequency.Duration, 5*time.Minute)
	entered := a.parts.loop.entered.Load()
	if entered == 0 {
		return nil // it has not begun
	}
	if ago := now.Sub(time.Unix(0, entered)); ago > limit {
		return fmt.Errorf("the syncLoop last came round %v ago; the limit is %v", ago, limit)
	}
	return nil
}

// deviceDir is the directory of the device plugins' sockets below the root directory.
func deviceDir(root string) string {
	return filepath.Join(root, filepath.Base(filepath.Clean(pluginapi.DevicePluginPath)))
}
