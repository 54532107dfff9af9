package agent

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/upkeep"
	"github.com/numalet/numalet/agent/upkeep/checkpoints"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// housekeepingPeriod is the kubelet's.
const housekeepingPeriod = 2 * time.Second

// newUpkeep makes the floor that looks at all others.
func (a *Agent) newUpkeep() (*upkeep.Upkeep, error) {
	n := a.node
	machine, pods, store := n.hardware.Changes(), a.pods.statuses.Changes(), n.store.Changes()
	return upkeep.New(upkeep.Config{
		Settings: n.cfg, Registry: n.registry, Tell: n.events.OnNode, Client: a.host.client,
		Running: a.host.pleg.All, Pods: a.pods.statuses, Images: a.host.images,
		Whole: func() bool { // else some may be another agent's
			return !a.host.others.Run() && a.pods.statuses.pubs.complete.Load()
		},
		Checkpoints: checkpoints.Config{
			DeviceDir: deviceDir(n.cfg.RootDir), BootID: n.bootID, Store: n.store, Hardware: n.hardware.Get,
			Inventory: a.devices.Inventory, Lasting: a.pods.sources.Lasting, Admitted: a.pods.admitted,
			Changed: mailbox.Subscribe(store, pods, a.devices.changed, machine),
		},
		Chores: []housekeeping.Task{
			{
				Name: "cgroups above the pods", Period: housekeepingPeriod,
				On: []mailbox.Source{machine, pods}, Run: a.resources.groups.Update,
			},
			{
				Name: "health of what pods hold", Period: time.Minute,
				On:  []mailbox.Source{machine, pods, a.devices.changed, a.devices.drivers.ill, store},
				Run: health.New(healthConfig(n, a.devices, a.pods)).Look,
			},
			a.pods.orphans(n, a.host.pleg.All, housekeepingPeriod,
				remainsOn(a.host, a.contents.volumes)),
			{
				Name: "gauges", Period: time.Minute, On: []mailbox.Source{machine, pods, store},
				Run: gauges(n, a.resources, a.pods),
			},
		},
	})
}

// endings are the goroutines that end pods or processes, and those that look at what pods have: they
// begin once running pods were adopted.
func (a *Agent) endings() ([]part.Part, error) {
	n := a.node
	evictions, err := a.newEvictions()
	if err != nil {
		return nil, err
	}
	failures, err := newFailures(n, a.devices, a.pods)
	if err != nil {
		return nil, err
	}
	down, err := newShutdown(n, a.host, a.pods)
	if err != nil {
		return nil, err
	}
	beside, err := newDaemons(n, a.host)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]part.Part{
		part.Of("shutdown", down.Run), part.Of("failed devices", failures.Run),
		a.contents.grow(n, a.pods.statuses.Store),
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
