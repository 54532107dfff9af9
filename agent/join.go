package agent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/checkpoints"
	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/firewall"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/metrics"
	"github.com/numalet/numalet/agent/oom"
	"github.com/numalet/numalet/agent/podcgroups"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/probe"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/syncloop"
	"github.com/numalet/numalet/agent/watchdog"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/mailbox"
)

// parts are those that others are made of, and the goroutines of all.
type parts struct {
	metrics     *metrics.Metrics
	plugins     *devicemanager.Plugins
	observer    *lifecycle.Observer
	statuses    *podstatus.Store
	cgroups     *podcgroups.Groups
	pool        *cpupool.Pool
	queue       *admission.Queue
	probes      *probe.Prober
	workers     *podworker.Workers
	sources     sources
	checkpoints *checkpoints.Checkpoints
	run         order
}

// order are the goroutines of the parts: the first run from the start, then once what runs was
// adopted.
type order struct{ first, then []part }

// links are what the parts tell each other through that do not know each other.
type links struct {
	inventory mailbox.Topic // what plugins offer has changed
	decisions *mailbox.Box[admission.Result]
	events    *mailbox.Box[syncloop.Event]
	told      told // the API server, of pods
	claims    claimed
}

// join makes the parts and joins them. The order is that of the road of a pod, upwards: a part is
// made of those before it, and what it tells those after it goes through the links.
func join(ctx context.Context, n node) (parts, error) {
	l := &links{
		decisions: mailbox.New[admission.Result](), events: mailbox.New[syncloop.Event](),
	}
	p, err := joinManagers(ctx, n, l)
	if err != nil {
		return p, err
	}
	own := newOwnNode(n, p, l)
	c, err := newContents(n, p, own.object, func() { p.queue.Poke() })
	if err != nil {
		return p, err
	}
	p.queue = newQueue(n, p, own, c.needs, l)
	if p.probes, err = newProber(n, func(uid types.UID) { p.workers.Wake(uid) }); err != nil {
		return p, err
	}
	var notices part
	if p.workers, notices, err = newWorkers(n, p, c, l.events.Put); err != nil {
		return p, err
	}
	p.sources = newSources(n, p.observer.All, func(all []*v1.Pod) []*v1.Pod {
		recallMirrored(p, l.told, all)
		return l.told.saw(all)
	})
	admitted := admittedBefore(ctx, n)
	loop := syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Updates: p.sources.Updates(), Observed: p.observer.Changes(), Decisions: l.decisions,
			Events: l.events, Capacity: mailbox.Subscribe(&l.inventory, n.hardware.Changes()),
		},
		Runtime: p.observer.Get, Admitted: admitted.Of, Admission: p.queue, Workers: p.workers,
		Statuses: p.statuses,
		Tell:     n.events.Pod, SeenAll: p.sources.SeenAll, Heard: l.told.heard,
		Restarted: p.metrics.Restarted,
	})
	p.checkpoints = newCheckpoints(n, p, &l.inventory, admitted)
	if err := p.serve(ctx, n, l, loop); err != nil {
		return p, err
	}
	p.run.first = append(p.run.first,
		part{"assignment store", n.store.Run}, part{"device plugins", p.plugins.Run},
		part{"runtime observer", p.observer.Run}, part{"admission", p.queue.Run},
		part{"pod workers", p.workers.Run}, notices, part{"probes", p.probes.Run})
	p.run.first = slices.Concat(p.run.first, kubeParts(n), l.told.parts(), c.parts(p.workers))
	// Before pods are adopted CPUs that containers have for themselves may look free, and the
	// kubelet's files have not been read.
	p.run.then = []part{
		{"cpu pool", p.pool.Run},
		{"machine", n.hardware.Run},
		{"container runtime status", n.runtime.up.Run},
		{"addresses", n.host.addresses.Run},
		{"checkpoints", p.checkpoints.Run},
		{"released devices", newTeller(n, p, l).Run},
		{"housekeeping", newHousekeeping(n, p, l, c.volumes).Run},
		{"pod sources", p.sources.Run},
		{"syncLoop", announced(loop.Run)},
		{"deadlines", newDeadlines(n, p, l).Run},
		{"oom watcher", oom.Watcher{Log: oom.KernelLog, Tell: n.events.OnNode}.Run},
	}
	garbage, err := garbageParts(n, p)
	p.run.then = slices.Concat(p.run.then, garbage, own.parts, measureParts(n, p, l, c.volumes))
	return p, err
}

// joinManagers makes what knows the hardware and the runtime, and who has what of them.
func joinManagers(ctx context.Context, n node, l *links) (p parts, err error) {
	if p.metrics, err = newMetrics(n); err != nil {
		return p, err
	}
	if p.plugins, err = newPlugins(ctx, n, l.inventory.Publish); err != nil {
		return p, err
	}
	if p.observer, err = lifecycle.New(lifecycle.Config{
		Client: n.client, Registry: n.registry,
	}); err != nil {
		return p, err
	}
	if l.told, err = newTold(ctx, n, p.metrics); err != nil {
		return p, err
	}
	p.statuses = newStatuses(n, p, l)
	p.cgroups = newCgroups(n, p.statuses)
	if err = p.cgroups.Ensure(ctx); err != nil {
		return p, err
	}
	enforced := func(message string) {
		n.events.OnNode(v1.EventTypeNormal, "NodeAllocatableEnforced", message)
	}
	if n.tree != nil {
		enforced("Updated Node Allocatable limit across pods")
	}
	if err = p.cgroups.EnforceReserved(ctx, enforced); err != nil {
		n.events.OnNode(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", err.Error())
		return p, err
	}
	p.pool = newPool(n, p)
	return p, nil
}

// serve listens for those who ask, and tells systemd that the agent is well.
func (p *parts) serve(ctx context.Context, n node, l *links, loop *syncloop.Loop) error {
	resources, err := newPodResources(n, *p, &l.inventory)
	if err != nil {
		return err
	}
	used, err := newStats(ctx, n, *p, l)
	if err != nil {
		return err
	}
	open := slices.Concat(openRoutes(n, *p), used.Routes(), resources.Routes())
	open = append(open, p.probes.Route())
	c := newListeners(n, *p, loop, open)
	api, follow, err := nodeAPI(ctx, n, *p, open)
	if err != nil {
		return err
	}
	c.Listeners = append(c.Listeners, api...)
	listeners, err := server.New(c)
	if err != nil {
		return err
	}
	guard, err := watchdog.New(func() error { return comesRound(n, loop) })
	if err != nil {
		return err
	}
	p.run.first = append(follow, part{"watchdog", guard.Run}, part{"pod resources", resources.Run},
		part{"statistics", used.Run}, part{"http server", listeners.Run})
	if *n.cfg.Kubelet.MakeIPTablesUtilChains {
		p.run.first = append(p.run.first, part{"iptables chains", firewall.New().Run})
	}
	return nil
}
