package agent

import (
	"context"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/checkpoints"
	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/metrics"
	"github.com/numalet/numalet/agent/podcgroups"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/syncloop"
	"github.com/numalet/numalet/deviceplugin"
)

// parts are those that others are made of, and the goroutines of all.
type parts struct {
	metrics     *metrics.Metrics
	plugins     *deviceplugin.Plugins
	observer    *lifecycle.Observer
	statuses    *podstatus.Store
	cgroups     *podcgroups.Groups
	pool        *cpupool.Pool
	queue       *admission.Queue
	workers     *podworker.Workers
	problems    *source.Problems
	checkpoints *checkpoints.Checkpoints
	// first run from the start, then once what runs was adopted.
	first, then []part
}

// join makes the parts and joins them. The order is that of the road of a pod, upwards: each part
// is made of those above it, and what it says to those below it goes through the topics and
// mailboxes that come first.
func join(ctx context.Context, n node) (p parts, err error) {
	inventory := &mailbox.Topic{} // what plugins offer has changed
	decisions := mailbox.New[admission.Result]()
	events := mailbox.New[syncloop.Event]()

	if p.metrics, err = newMetrics(n); err != nil {
		return p, err
	}
	if p.plugins, err = newPlugins(n, inventory.Publish); err != nil {
		return p, err
	}
	if p.observer, err = lifecycle.New(lifecycle.Config{
		Client: n.client, Registry: n.registry,
	}); err != nil {
		return p, err
	}
	p.statuses = newStatuses(n, p.plugins)
	p.cgroups = newCgroups(n, p.statuses)
	if err = p.cgroups.Ensure(ctx); err != nil {
		return p, err
	}
	p.pool = newPool(n, p)
	p.queue = newQueue(n, p, decisions.Put)
	volumes, err := newVolumes(n)
	if err != nil {
		return p, err
	}
	if p.workers, err = newWorkers(n, p, volumes, events.Put); err != nil {
		return p, err
	}
	p.problems = source.NewProblems()
	sources := newSources(n, p.problems)
	loop := syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Updates: sources.Updates(), Observed: p.observer.Changes(), Decisions: decisions,
			Events: events, Capacity: mailbox.Subscribe(inventory, n.hardware.Changes()),
		},
		Runtime: p.observer.Get, Admission: p.queue, Workers: p.workers, Statuses: p.statuses,
		Tell: n.events.Pod, SeenAll: sources.SeenAll,
	})
	p.checkpoints = newCheckpoints(n, p, inventory)
	resources, err := newPodResources(n, p, inventory)
	if err != nil {
		return p, err
	}
	listeners, err := server.New(newListeners(n, p, loop))
	if err != nil {
		return p, err
	}
	p.first = []part{
		{"assignment store", n.store.Run},
		{"device plugins", p.plugins.Run},
		{"runtime observer", p.observer.Run},
		{"admission", p.queue.Run},
		{"pod workers", p.workers.Run},
		{"http server", listeners.Run},
		{"pod resources", resources.Run},
	}
	// Before pods are adopted CPUs that containers have for themselves may look free, and the
	// kubelet's files have not been read.
	p.then = []part{
		{"cpu pool", p.pool.Run},
		{"cgroups", p.cgroups.Run},
		{"machine", n.hardware.Run},
		{"hardware health", newHealth(n, p, inventory).Run},
		{"checkpoints", p.checkpoints.Run},
		{"housekeeping", newHousekeeping(n, p, volumes, events.Put).Run},
		{"pod sources", sources.Run},
		{"syncLoop", loop.Run},
		{"systemd", systemd},
	}
	return p, nil
}
