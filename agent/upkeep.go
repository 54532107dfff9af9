package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/pods/records"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/upkeep/checkpoints"
	"github.com/numalet/numalet/agent/upkeep/footprint"
	"github.com/numalet/numalet/agent/upkeep/gc"
	"github.com/numalet/numalet/agent/upkeep/housekeeping"
	"github.com/numalet/numalet/agent/upkeep/images"
	"github.com/numalet/numalet/agent/upkeep/logs"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/quantity"
)

const (
	// housekeepingPeriod is the kubelet's.
	housekeepingPeriod = 2 * time.Second
	// sweepPeriod is the time between two cheap searches for unneeded containers and logs.
	sweepPeriod = 15 * time.Second
	// imagesPeriod is the time between two looks at images and their disk, which may fill fast.
	imagesPeriod = 30 * time.Second
)

// upkeep lists periodic tasks, which also run soon after something changed. A task that may block
// has a goroutine of its own.
func (a *Agent) upkeep() ([]part, error) {
	n := a.node
	rotation, err := newRotation(n, a.host)
	if err != nil {
		return nil, err
	}
	unused, err := newImageGC(n, a.host, a.pods.statuses.Active)
	if err != nil {
		return nil, err
	}
	machine, pods, store := n.hardware.Changes(), a.pods.statuses.Changes(), n.store.Changes()
	chores := housekeeping.New(
		housekeeping.Task{
			Name: "cgroups above the pods", Period: housekeepingPeriod,
			On: []mailbox.Source{machine, pods}, Run: a.resources.groups.Update,
		},
		housekeeping.Task{
			Name: "health of what pods hold", Period: time.Minute,
			On:  []mailbox.Source{machine, pods, a.devices.changed, a.devices.drivers.ill, store},
			Run: health.New(healthConfig(n, a.devices, a.pods)).Look,
		},
		a.pods.orphans(n, a.host.pleg.All, housekeepingPeriod,
			remainsOn(a.host, a.contents.volumes)),
		housekeeping.Task{Name: "memory of the agent", Period: time.Minute, Run: footprint.LetGo},
		housekeeping.Task{
			Name: "gauges", Period: time.Minute, On: []mailbox.Source{machine, pods, store},
			Run: gauges(n, a.resources, a.pods),
		},
	)
	containers := newContainerGC(n, a.host, a.pods)
	evictions, err := a.newEvictions(containers, unused)
	if err != nil {
		return nil, err
	}
	failures, err := a.newFailures()
	if err != nil {
		return nil, err
	}
	down, err := a.newShutdown()
	if err != nil {
		return nil, err
	}
	beside, err := newDaemons(n, a.host)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]part{
		{"housekeeping", chores.Run}, rotation, {"shutdown", down.Run},
		{"failed devices", failures.Run}, {"dead containers", housekeeping.New(
			n.garbage("dead containers", containers.Look),
			n.garbage("logs of what is gone", newSweep(n, a.host, a.pods).Look)).Run},
		a.contents.grow(n, a.pods.statuses.Store),
		chore(housekeeping.Task{
			Name: "unused images", Period: imagesPeriod, Run: unused.Look,
			First: time.Second, // this look only sees what there is: nothing has an age yet
		}),
	}, beside, evictions, a.contents.measure(n, a.pods.statuses.Store),
		a.health.parts(n, a.contents, a.devices.csi, a.pods.statuses.Store)), nil
}

// remainsOn lists the pods of which something is left on the host.
func remainsOn(h host, v *volume.Volumes) map[string]func() ([]types.UID, error) {
	return map[string]func() ([]types.UID, error){
		"directories": func() ([]types.UID, error) { return v.Orphans(nil) },
		"cgroups": func() ([]types.UID, error) {
			if h.tree == nil || h.others.Run() { // else it may be one of theirs
				return nil, nil
			}
			return h.tree.Orphans(func(types.UID) bool { return false })
		},
	}
}

// gauges brings the gauges up to date.
func gauges(n node, r resourceDomain, p podDomain) func(context.Context) error {
	return func(context.Context) error {
		var exclusive, available cpuset.CPUSet // without the static policy none, as the kubelet says
		h, state := n.hardware.Get(), n.store.State()
		if h.CPUs != nil {
			exclusive = state.CPUs()
			available = r.loop.Shared().Difference(h.CPUs.Reserved())
		}
		n.metrics.CPUs(h.Machine, exclusive, available)
		n.metrics.Placed(state.List())
		n.metrics.Pods(p.statuses.Specs(), p.statuses.Active())
		return nil
	}
}

// healthConfig configures the followers of the hardware that pods hold.
func healthConfig(n node, d deviceDomain, p podDomain) health.Config {
	return health.Config{
		Hardware: n.hardware.Get, State: n.store.State, Inventory: d.Inventory,
		Drivers: d.drivers.health, Pod: p.statuses.Get, Status: p.statuses.Status,
		Refresh: p.workers.Wake, Tell: n.events.Pod, Rules: d.failures.Rules(),
		Devices: n.tellsDevices(), Unified: hostinfo.Unified(),
	}
}

// newCheckpoints keeps the kubelet's files, and reads them before the first pod is decided on.
func newCheckpoints(n node, h host, d deviceDomain, p podDomain) *checkpoints.Checkpoints {
	return checkpoints.New(checkpoints.Config{
		Root: n.cfg.RootDir, DeviceDir: deviceDir(n.cfg.RootDir), BootID: n.bootID,
		Store: n.store, Running: h.pleg.All, Hardware: n.hardware.Get,
		Inventory: d.Inventory, Tell: n.events.OnNode, Lasting: p.sources.Lasting,
		Admitted: p.admitted, Active: p.statuses.Active,
		Changed: mailbox.Subscribe(n.store.Changes(), p.statuses.Changes(), d.changed,
			n.hardware.Changes()),
	})
}

// garbage is a task whose failures are events of the node.
func (n node) garbage(name string, run func(context.Context) error) housekeeping.Task {
	return housekeeping.Task{Name: name, Period: sweepPeriod, Run: func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil {
			n.events.OnNode(v1.EventTypeWarning, "ContainerGCFailed", err.Error())
		}
		return err
	}}
}

// newRotation keeps the logs of running containers at their size.
func newRotation(n node, h host) (part, error) {
	k := &n.cfg.Kubelet
	size, err := quantity.Parse(k.ContainerLogMaxSize)
	if err != nil {
		return part{}, err
	}
	r := logs.New(logs.Config{
		Running: h.pleg.All, LogsDir: k.PodLogsDir, Reopen: h.client.Runtime().ReopenContainerLog,
		MaxSize: size.Value(), MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers),
	})
	return chore(housekeeping.Task{
		Name: "log rotation", Period: k.ContainerLogMonitorInterval.Duration, Run: r.Look,
	}), nil
}

// newContainerGC bounds the exited containers.
func newContainerGC(n node, h host, p podDomain) gc.Containers {
	return gc.Containers{
		Most: int(n.cfg.DeadContainers.Most), Age: n.cfg.DeadContainers.Age,
		Running: h.pleg.All, Pod: p.statuses.AtSource,
		Remove: records.Records{
			Runtime: h.client.Runtime(), Logs: logfiles.PlaceAt(n.cfg.Kubelet.PodLogsDir),
		}.Remove,
	}
}

// newSweep removes the logs of pods that are gone.
func newSweep(n node, h host, p podDomain) *logs.Sweep {
	return &logs.Sweep{
		Place: logfiles.PlaceAt(n.cfg.Kubelet.PodLogsDir), Known: p.knows, Running: h.pleg.All,
		Ready: func() bool {
			// Or some may be another agent's.
			return !h.others.Run() && p.statuses.pubs.complete.Load()
		},
	}
}

// newImageGC removes images that nothing uses.
func newImageGC(n node, h host, active func() []*v1.Pod) (*gc.Images, error) {
	k := &n.cfg.Kubelet
	return gc.NewImages(gc.ImagesConfig{
		Policy: gc.ImagePolicy{
			High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		Handlers: n.cfg.Enabled("RuntimeClassInImageCriApi"),
		Tell:     n.events.OnNode, Registry: n.registry,
		Left: func(left []gc.Image, at time.Time) {
			all := make([]images.Image, 0, len(left))
			for _, i := range left {
				all = append(all, images.Image{ID: i.ID, Names: i.Names})
			}
			h.images.Keep(all, at)
		},
	}.Of(h.client, active))
}
