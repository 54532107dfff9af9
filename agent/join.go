package agent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/cluster"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/endings"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/agent/serving"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/upkeep"
	"github.com/numalet/numalet/agent/upkeep/images/provider"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// floors has the floors of a node with a host.
type floors struct {
	base
	reads     reads
	storage   *storage.Storage
	placement *placement.Placement
	resources placement.Resources
	pods      *pods.Pods
	probes    pods.Prober
	stats     *stats.Collector
	evictions *node.Evictions
	serving   *serving.Serving
	upkeep    *upkeep.Upkeep
}

// reads has what is read of the API server.
type reads struct {
	object   func() *v1.Node   // the node's; nil: it is not known. It is made up on a standalone node
	cluster  *cluster.Cluster  // nil, as contents: the node is in no cluster
	contents *cluster.Contents // what pods are made of
}

// writes tell the API server of the node; nil: it is in no cluster.
type writes struct {
	node    *cluster.Node
	drivers *cluster.Drivers
}

// order are goroutines: the first run from the start, then once running pods were adopted.
type order struct{ first, then []part.Part }

// join makes the floors, each of what it needs of the others:
//
//	reads       what the API server says of the node and its pods
//	storage     volumes, and drivers of CSI
//	placement   device plugins, drivers and claims
//	statuses    the last status of every pod, and who is told of it
//	resources   cgroups, CPU sets, quotas
//	writes      the node's object, lease and zones, its CSINode and slices
//	pods        sources -> syncLoop -> admission -> workers
//	stats       what the node and its pods use, and evictions by that
//	serving     ports and sockets
//	upkeep      chores
//
// What a floor tells those above goes through a mailbox, as events of pods to the syncLoop, or through a topic,
// which says that something is another.
func join(ctx context.Context, b base) (*Agent, error) {
	f := floors{base: b}
	events := mailbox.New[syncloop.Event]()
	ends, err := pods.OpenEndings(ctx, b.host.Node, events)
	if err != nil {
		return nil, err
	}
	if f.reads, err = b.reads(); err != nil {
		return nil, err
	}
	if f.storage, err = b.storage(ctx, f.reads, ends); err != nil {
		return nil, err
	}
	if f.placement, err = b.placement(ctx, f.reads, f.storage); err != nil {
		return nil, err
	}
	statuses, err := f.statuses(ctx, events, ends)
	if err != nil {
		return nil, err
	}
	f.resources, err = f.placement.NewResources(ctx, placement.ResourcesConfig{
		Active: statuses.Active, Get: statuses.Get, Observer: b.pleg,
		Repaired: b.metrics.Cgroups.Repaired, Unread: b.metrics.Cgroups.Unread, Settled: statuses.Settled,
		Had: statuses.Admitted.Had, ResizeVolume: f.storage.Volumes.ResizeInMemory,
	})
	if err != nil {
		return nil, err
	}
	images, err := f.openImages(ctx)
	if err != nil {
		return nil, err
	}
	w := f.writes(statuses)
	if err := f.road(ctx, statuses, images, w); err != nil {
		return nil, err
	}
	meter := f.newMeter()
	if f.stats, err = serving.NewStats(b.host, b.pleg, f.storage, meter); err != nil {
		return nil, err
	}
	if f.upkeep, err = upkeep.New(upkeep.Config{
		Host: b.host, Placement: f.placement, Resources: f.resources, Storage: f.storage, Pods: f.pods,
		PLEG: b.pleg, Images: images, Gauges: b.metrics,
	}); err != nil {
		return nil, err
	}
	if f.evictions, err = f.newEvictions(meter); err != nil {
		return nil, err
	}
	if f.serving, err = serving.New(ctx, serving.Config{
		Host: b.host, Placement: f.placement, Resources: f.resources, Storage: f.storage, Pods: f.pods,
		PLEG: b.pleg, Probes: f.probes, Evictions: f.evictions, Stats: f.stats, Recorder: b.events,
		Trace: b.trace.Provider(), Kube: b.kube,
	}); err != nil {
		return nil, err
	}
	run, err := f.order(w, meter)
	return &Agent{f, run}, err
}

func (b base) reads() (r reads, err error) {
	if b.kube == nil {
		r.object = cluster.Standalone(b.host.Node)
		return r, nil
	}
	if r.cluster, err = cluster.New(b.host.Node, b.kube); err != nil {
		return r, err
	}
	r.object = r.cluster.Object
	b.host.Addresses.Follow(r.object)
	r.contents, err = cluster.NewContents(r.cluster)
	return r, err
}

func (b base) storage(ctx context.Context, r reads, e *endings.Endings) (*storage.Storage, error) {
	h, k := b.host, &b.host.Settings.Kubelet
	c := storage.Config{
		Root: h.Settings.RootDir, LogsDir: k.PodLogsDir, Node: h.Name,
		ClusterDomain: k.ClusterDomain, MounterPath: h.Settings.MounterPath, Enabled: h.Enabled,
		StatsPeriod: k.VolumeStatsAggPeriod.Duration, SyncPeriod: k.SyncFrequency.Duration,
		Registry: h.Registry, Object: r.object,
		Facts: func() cri.Facts { return cri.Facts{Allocatable: h.Hardware.Get().Allocatable} },
		Ends: storage.Ends{
			Ends: volume.Ends{Done: b.metrics.Mounted, Tell: h.Events.About,
				Limit: pods.Refuse(h.Node, b.metrics, e)},
			OnNode: h.Events.OnNode, Looked: b.metrics.VolumeLooked, Measured: b.metrics.Volumes,
		},
	}
	if r.contents != nil {
		c.Cluster = r.contents.Volumes()
	}
	return storage.New(ctx, c)
}

func (b base) placement(ctx context.Context, r reads, s *storage.Storage) (*placement.Placement, error) {
	c := placement.Config{Host: b.host, CSI: s.Drivers.Handler()}
	if r.contents != nil {
		c.Cluster = r.contents.Claims()
	}
	var err error
	if c.Store, err = placement.OpenStore(ctx, b.host.Node); err != nil {
		return nil, err
	}
	return placement.New(ctx, c)
}

func (f floors) statuses(ctx context.Context, events *mailbox.Box[syncloop.Event], e *endings.Endings) (
	*pods.Statuses, error) {
	h := f.host
	c := pods.StatusConfig{
		Node: h.Node, HostIPs: h.Addresses.IPs, Get: f.pleg.Get, Volumes: f.storage.Health(),
		Runtime: status.Node{Runtime: h.Runtime.Name, Handlers: h.Runtime.Handlers,
			ImageRefs: h.Enabled("ImageVolumeWithDigest")},
		Devices: f.placement.Health(), Endings: e, Failures: f.placement.Failures, Metrics: f.metrics,
		Events: events,
	}
	var err error
	if c.Kept, err = pods.OpenKept(ctx, h.Node); err != nil {
		return nil, err
	}
	if c.Publishers, err = serving.PodsAPI(h.Node); err != nil {
		return nil, err
	}
	if f.reads.cluster != nil {
		c.Publishers = append(c.Publishers, f.reads.cluster.Publishers()...)
	}
	return pods.NewStatuses(c), nil
}

func (f floors) openImages(ctx context.Context) (upkeep.Images, error) {
	var accounts provider.Accounts
	if f.reads.contents != nil {
		accounts = f.reads.contents.Objects
	}
	return upkeep.OpenImages(ctx, f.host, accounts, f.metrics)
}

func (f floors) writes(statuses *pods.Statuses) *writes {
	if f.reads.cluster == nil {
		return nil
	}
	drivers := cluster.NewDrivers(f.reads.contents, f.placement, f.storage)
	own := cluster.NewNode(f.reads.cluster, cluster.NodeConfig{
		Store: f.placement.Store, Pods: statuses.Store,
		Inventory: f.placement.Plugins.Inventory, Offered: f.placement.Offered,
		Describe: []func(*nodestatus.Facts){f.describe, cluster.InUse(f.storage), drivers.Describe},
		Changed:  append(f.changes(), f.storage.Used),
		Supports: f.host.Supports(), Unanswered: f.kube.Reset, Startup: f.metrics.Startup,
	})
	f.events.Follow(own.Node)
	return &writes{own, drivers}
}

// road makes the road of pods.
func (f *floors) road(ctx context.Context, statuses *pods.Statuses, images upkeep.Images, w *writes) (err error) {
	p := f.placement
	c := pods.Config{
		Statuses: statuses, Metrics: f.metrics, Trace: f.spans(),
		Queue: placement.QueueConfig{
			Node: f.host.Node, Store: p.Store, Plugins: p.Plugins, State: f.state, Object: f.reads.object,
			Reread: func(context.Context) {}, Supports: f.host.Supports(), Claims: p.Claims.Admission(),
		},
		Capacity: append(f.changes(), p.Offered, p.Claims.Changed),
	}
	on := pods.HostConfig{Placement: p, PLEG: f.pleg, Resources: f.resources, Storage: f.storage,
		Images: images.Images, Metrics: f.metrics}
	if w != nil {
		c.Queue.Clustered, c.Queue.Reread, c.Queue.Needs = true, w.node.Reread, w.drivers.Needs()
		c.Cluster, on.Objects = f.reads.cluster.Pods(), f.reads.contents.Objects
		c.Capacity = append(c.Capacity, f.reads.cluster.Updates(), f.reads.contents.Needed,
			f.reads.contents.Slices.Changes())
	}
	if f.probes, err = pods.NewProber(f.host); err != nil {
		return err
	}
	if c.Ends, err = pods.OnHost(on, f.probes); err != nil {
		return err
	}
	f.pods = pods.New(ctx, c)
	return nil
}

// newMeter measures what pods use of the node's disks.
func (f floors) newMeter() *localstorage.Meter {
	var processes *held.Pods
	if f.host.Tree != nil {
		processes = &held.Pods{Groups: kernel.NewGroups(""), Paths: f.host.Tree.Paths}
	}
	return f.storage.NewMeter(f.pods.Active, processes)
}

// newEvictions end pods of which the node says that they go. What may be removed first is removed by upkeep.
func (f floors) newEvictions(m *localstorage.Meter) (*node.Evictions, error) {
	return node.NewEvictions(f.host, node.EvictionsConfig{
		Active: f.pods.Active, Facts: f.pods.EvictionFacts(f.placement.Store),
		Meter: serving.Meter(f.host, f.stats, m), Used: f.stats.Recent, End: f.pods.Evict,
		Reclaim: f.upkeep.Reclaim,
	})
}

// order lists the goroutines. Before running pods are adopted, their exclusive CPUs may look free, and the
// kubelet's files have not been read.
func (f floors) order(w *writes, m *localstorage.Meter) (run order, err error) {
	placed, workers := f.pods.Placed(), f.pods.Workers
	guards, err := f.host.Guards(f.pods.ComesRound)
	if err != nil {
		return run, err
	}
	beside, err := f.host.Parts(f.reads.object)
	if err != nil {
		return run, err
	}
	followers, err := f.placement.Followers(placed, f.pods.Queue.Poke)
	if err != nil {
		return run, err
	}
	down, err := node.NewShutdown(f.host, f.pods.ShutdownFacts(f.placement.Store), f.pods.Down)
	if err != nil {
		return run, err
	}
	run.first = slices.Concat(f.serving.Parts(), guards, f.placement.Parts(placed), []part.Part{
		part.Of("tracing", f.trace.Run), part.Of("runtime observer", f.pleg.Run),
		part.Of("local storage", m.Run),
	}, f.pods.First(), f.probes.Parts(workers.Wake), f.storage.Parts(workers.Retry))
	run.then = slices.Concat([]part.Part{
		part.Of("resources", f.resources.Loop.Run), part.Of("shutdown", down.Run),
	}, beside, followers, f.pods.Then(), f.upkeep.Parts(), f.evictions.Parts(),
		f.storage.Chores(f.pods.Active, workers.Retry))
	if w != nil {
		run.first = append(append(run.first, w.drivers.Parts(workers.Retry)...),
			part.Of("API server client", f.kube.Run))
		run.then = append(run.then, w.node.Parts()...)
	}
	return run, nil
}
