package agent

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/firewall"
	"github.com/numalet/numalet/agent/node/watchdog"
	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/serving"
	"github.com/numalet/numalet/agent/serving/podresources"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/agent/storage/localstorage/quota"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// newServing listens for those who ask the node.
func (a *Agent) newServing(ctx context.Context) (*serving.Serving, error) {
	n := a.node
	return serving.New(ctx, serving.Config{
		Settings: n.cfg, Node: n.name, Registry: n.registry, Trace: n.trace.Provider(), Kube: n.kube,
		Addresses: a.host.addresses, SetAside: n.quarantined, Client: a.host.client,
		Observed: a.host.pleg.Get, Running: a.host.pleg.All, Pods: a.pods.statuses,
		Open: a.openRoutes(), Guarded: append(devices.Routes(a.devices.routes(n)),
			claims.Routes(a.contents.claims.Manager)...),
		Socket: filepath.Join(n.cfg.RootDir, devices.Socket), Checks: a.checks(), Stats: a.stats,
		PodResources: podResources(n, a.devices, a.contents.claims, a.pods),
	})
}

// guards tell systemd that the agent is well, and keep the node's iptables chains.
func (a *Agent) guards() ([]part.Part, error) {
	guard, err := watchdog.New(a.pods.comesRound(a.node.cfg.Kubelet.SyncFrequency.Duration))
	if err != nil {
		return nil, err
	}
	out := []part.Part{part.Of("watchdog", guard.Run)}
	if *a.node.cfg.Kubelet.MakeIPTablesUtilChains {
		out = append(out, part.Of("iptables chains", firewall.New().Run))
	}
	return out, nil
}

// comesRound returns a check that fails if the syncLoop, which looks so often, is stuck.
func (p podDomain) comesRound(often time.Duration) func() error {
	return func() error { return p.loop.Healthy(time.Now(), max(2*often, 5*time.Minute)) }
}

// errRegistration is why the health check of device plugins fails.
var errRegistration = errors.New("the registration of device plugins is not served yet")

func (a *Agent) checks() []healthz.HealthChecker {
	round := a.pods.comesRound(a.node.cfg.Kubelet.SyncFrequency.Duration)
	return []healthz.HealthChecker{
		healthz.NamedCheck("syncloop", func(*http.Request) error { return round() }),
		healthz.NamedCheck("sources", func(*http.Request) error {
			return a.pods.sources.Healthy(time.Now(), time.Minute)
		}),
		healthz.NamedCheck("pleg", func(*http.Request) error {
			return a.host.pleg.Healthy(time.Now())
		}),
		healthz.NamedCheck("device-plugin", func(*http.Request) error {
			select {
			case <-a.devices.Ready():
				return nil
			default:
				return errRegistration
			}
		}),
	}
}

// openRoutes change nothing; the read-only port has them too.
func (a *Agent) openRoutes() []route.Route {
	n, p := a.node, a.pods
	return []route.Route{
		server.PodsRoute(p.statuses.List),
		route.JSON("/placements", func() any { return a.Placements() }),
		route.JSON("/plugins", func() any { return a.devices.Peers() }),
		route.JSON("/problems", func() any { return a.Problems() }),
		devices.ListRoute(a.devices.routes(n)), devices.DriversRoute(a.devices.routes(n)),
		route.JSON("/csidrivers", func() any { return a.devices.csi.List() }),
		claims.ListRoute(a.contents.claims.Manager, a.devices.failures.Outlooks),
		n.events.Route(),
		fit.FreeRoute(p.queue),
		explain.Route(p.queue, n.name, p.statuses.Knows, a.remarks), a.shortageRoute(),
		fit.Route(p.queue, a.devices.Plugins, a.contents.claims.placer(n), n.cfg.RefuseUnknownFields,
			n.cfg.Enabled), a.probes.Route(),
	}
}

// Problems lists what is wrong now with manifests, by source and name, and then with device
// plugins, by resource, and with volumes.
func (a *Agent) Problems() []complaint.Problem {
	return slices.Concat(a.pods.problems.List(), devices.Problems(a.devices.Peers()),
		devices.DriverProblems(a.devices.drivers.List()), a.contents.mounts.problems())
}

// Placements says where every container of the node's pods is.
func (a *Agent) Placements() []assigned.Row {
	return assigned.Rows(assigned.Input{
		Hardware: a.node.hardware.Get(), Pods: a.pods.statuses.List(),
		Assigned: a.node.store.State(), Shared: a.resources.loop.Shared(),
		Health: a.devices.Inventory().Health,
	})
}

// remarks says what went wrong with the pods of a name, with their device plugins, with their volumes and
// the records of those, and which claims keep them.
func (a *Agent) remarks(namespace, name string) (all explain.Remarks) {
	n, d, m, c := a.node, a.devices, a.contents.mounts, a.contents.claims
	for _, pod := range a.pods.statuses.AllNamed(namespace, name) {
		one := explain.Amiss(pod, d.Peers(), n.cfg.Kubelet.PodLogsDir, time.Now(),
			func() []string {
				return health.Amiss(pod, n.store.State().Pods[pod.UID],
					health.Sources{Inventory: d.Inventory(), Drivers: d.drivers.health}, d.failures.Outlooks())
			})
		all.Plugins = append(all.Plugins, one.Plugins...)
		all.Since, all.Logs = append(all.Since, one.Since...), append(all.Logs, one.Logs...)
		all.Since = slices.Concat(all.Since, m.Amiss(pod.UID), m.Stuck(pod.UID))
		if c.Manager != nil {
			all.Since = append(all.Since, claims.Stuck(c.List(), pod.UID, time.Now())...)
		}
	}
	return all
}

// podResources tells monitoring agents who holds what.
func podResources(n node, d deviceDomain, c claimDomain, p podDomain) podresources.Config {
	return podresources.Config{
		Socket:   filepath.Join(n.cfg.RootDir, "pod-resources", "kubelet.sock"),
		Registry: n.registry,
		Changed: mailbox.Subscribe(p.statuses.Changes(), n.store.Changes(), d.changed,
			n.hardware.Changes()),
		Snapshot: func() podresources.Snapshot {
			h, state := n.hardware.Get(), n.store.State()
			s := podresources.Snapshot{
				Pods: p.statuses.Holding(func(uid types.UID) bool {
					_, has := state.Pods[uid]
					return has
				}),
				Assigned: state, Inventory: d.Inventory(), Memory: h.Memory,
				Machine: h.Machine,
			}
			if c.Manager != nil {
				s.Claims = c.Prepared
			}
			if h.CPUs != nil {
				s.CPUs = h.CPUs.Free(cpuset.New()).Union(h.CPUs.Isolated())
			}
			return s
		},
	}
}

// newMeter measures what pods use of the node's disks.
func newMeter(n node, h host, pods func() []*v1.Pod) *localstorage.Meter {
	k := &n.cfg.Kubelet
	c := localstorage.Config{
		Root: n.cfg.RootDir, LogsDir: k.PodLogsDir, Period: k.VolumeStatsAggPeriod.Duration,
		Pods: pods, Looked: n.metrics.VolumeLooked,
	}
	if n.countsProjects() {
		c.Quota = quota.Used
	}
	if h.tree != nil {
		c.Processes = &held.Pods{Groups: kernel.NewGroups(""), Paths: h.tree.Paths}
	}
	return localstorage.New(c)
}

// newStats tells what the node and its pods use.
func newStats(n node, h host, c contentDomain, m *localstorage.Meter) (*stats.Collector, error) {
	proc, err := kernel.NewProc("")
	if err != nil {
		return nil, err
	}
	groups := stats.Groups{Groups: kernel.NewGroups(""),
		Daemons: stats.DaemonGroups(n.daemonNames().Paths())}
	if h.tree != nil {
		groups.Pods, groups.Paths = h.tree.PodsPath(), h.tree.Paths
	}
	return stats.New(stats.Config{
		Node: n.name, Runtime: h.client, Running: h.pleg.All, Registry: n.registry,
		CPUs: func() stats.CPUs {
			m := n.hardware.Get().Machine
			return stats.CPUs{Logical: m.Online().Size(), Cores: len(m.Cores()),
				Sockets: len(m.Sockets())}
		},
		Host: stats.Host{BootID: h.info.BootID, MachineID: h.info.MachineID,
			SystemUUID: h.info.SystemUUID},
		Groups: groups, Proc: proc, HugePagesCount: n.cfg.Gates.Enabled("HugepageAwareEviction"),
		Disks: stats.DisksConfig{Root: n.cfg.RootDir, Pods: m.Get, Rooms: c.measured},
	})
}
