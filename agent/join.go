package agent

import (
	"context"
	"slices"

	"github.com/numalet/numalet/agent/node/oom"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/part"
)

// join makes the domains, each of what it needs, and joins them:
//
//	node, host     what they stand on                                   node.go, host.go
//	devices        device plugins and drivers, and what they offer      devices.go
//	claims         resource claims of pods                              claims.go
//	health         what drivers say of volumes                         volumehealth.go
//	pubs           who is told of pods: the next run, programs, API     publish.go
//	statuses       the last status of every pod                         pods.go
//	resources      cgroups, CPU sets, quotas                            resources.go
//	known          the node's object, as others read it                 cluster.go
//	contents       volumes, objects, what pods need                     contents.go, csi.go
//	own            the node's object, lease and zones                   cluster.go
//	probes, act    probes; actions become calls                         probes.go, containers.go
//	pods           sources -> syncLoop -> admission -> workers          pods.go, admission.go
//	upkeep         chores                                               upkeep.go
//	serving        ports and sockets                                    serving.go, api.go
//
// A domain is made of those above it. What it tells those above goes through a mailbox: events of
// pods to the syncLoop, and topics that say that something is another.
func join(ctx context.Context, n node, h host) (*Agent, error) {
	devices, err := newDevices(ctx, n)
	if err != nil {
		return nil, err
	}
	known := newKnownNode(n)
	claims, err := newClaims(ctx, n, known.object, h.client, devices.drivers)
	if err != nil {
		return nil, err
	}
	health := newVolumeHealth(n)
	pubs, err := newPublishers(ctx, n)
	if err != nil {
		return nil, err
	}
	statuses := newStatuses(n, pubs, statusEnds{
		runtime: status.Node{Runtime: h.runtime.Name, Handlers: h.runtime.Handlers,
			ImageRefs: n.cfg.Enabled("ImageVolumeWithDigest")},
		hostIPs: h.addresses.IPs, inventory: devices.Inventory, claims: claims, volumes: health,
		recall: pubs.recall(n, h), over: devices.failures.Over,
	})
	resources, err := newResources(ctx, n, h, statuses.Store)
	if err != nil {
		return nil, err
	}
	if n.kube != nil {
		h.addresses.Follow(known.object)
	}
	contents, err := newContents(ctx, n, storageEnds{devices.csi, known, statuses.limited(n)}, claims)
	if err != nil {
		return nil, err
	}
	own := newClusterNode(n, known, statuses.Store, h.nodeEnds(n, devices, contents.mounts))
	probes, err := newProbes(n, h.client)
	if err != nil {
		return nil, err
	}
	act, err := h.actuator(n, devices, resources, contents)
	if err != nil {
		return nil, err
	}
	pods := newPods(ctx, n, statuses, podEnds{
		admissionEnds: h.admissionEnds(own, devices, contents),
		runtime:       h.pleg, actuator: act, probes: probes, volumes: contents.volumes,
		doomed: doomers(h.doomed, h.downed, devices.doomed), failed: devices.failures.Condemned,
		lost: h.lost, holds: contents.claims.holds,
	})
	disks := newMeter(n, h, statuses.Active)
	used, err := newStats(n, h, contents, disks)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		node: n, host: h, devices: devices, resources: resources,
		contents: contents, health: health, probes: probes, pods: pods,
		stats: used, disks: disks,
	}
	if a.upkeep, err = a.newUpkeep(); err != nil {
		return nil, err
	}
	return a, a.list(ctx, own)
}

// order are goroutines: the first run from the start, then once running pods were adopted.
type order struct{ first, then []part.Part }

// list opens the ports, and lists the goroutines. Before running pods are adopted, their exclusive
// CPUs may look free, and the kubelet's files have not been read.
func (a *Agent) list(ctx context.Context, own clusterNode) error {
	n, h := a.node, a.host
	serving, err := a.newServing(ctx)
	if err != nil {
		return err
	}
	guards, err := a.guards()
	if err != nil {
		return err
	}
	endings, err := a.endings()
	if err != nil {
		return err
	}
	a.run.first = slices.Concat(serving.Parts(), guards, []part.Part{
		part.Of("tracing", n.trace.Run),
		part.Of("assignment store", n.store.Run), part.Of("device plugins", a.devices.Run),
		part.Of("drivers of resource claims", a.devices.drivers.Run),
		part.Of("drivers of CSI volumes", a.devices.csi.Run),
		part.Of("health of drivers' devices", a.devices.drivers.health.Run),
		part.Of("runtime observer", a.host.pleg.Run), part.Of("local storage", a.disks.Run),
	}, a.pods.first, a.probes.follow(a.pods.workers.Wake),
		a.contents.follow(n, a.pods.workers, a.devices.csi, claimEnds{
			again: a.pods.workers.Retry, own: own.object, statuses: a.pods.statuses.Store, pleg: h.pleg,
			heard: a.pods.statuses.pubs.complete,
		}))
	if n.kube != nil {
		a.run.first = append(a.run.first, part.Of("API server client", n.kube.Run))
	}
	a.run.then = slices.Concat([]part.Part{
		part.Of("resources", a.resources.loop.Run),
		part.Of("machine", n.hardware.Run),
		part.Of("container runtime status", h.up.Run),
		part.Of("addresses", h.addresses.Run),
		newPodCIDR(n, h, own.object),
		part.Of("released devices", a.devices.notifier(n, a.pods.queue.Poke).Run),
		part.Of("oom watcher", oom.Watcher{Log: oom.KernelLog, Tell: n.events.OnNode}.Run),
		part.Of("systemd", announce),
	}, a.pods.then, a.upkeep.Parts(), endings, own.run)
	return nil
}
