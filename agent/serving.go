package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
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

// serving answers those who ask the node.
type serving struct {
	*Agent
	open []route.Route // change nothing, and are on every port
}

// serve listens for those who ask the node, and tells systemd that the agent is well.
func (a *Agent) serve(ctx context.Context) ([]part.Part, error) {
	n := a.node
	resources, err := newPodResources(n, a.devices, a.contents.claims, a.pods)
	if err != nil {
		return nil, err
	}
	s := serving{Agent: a}
	s.open = slices.Concat(s.openRoutes(), a.stats.Routes(), resources.Routes(),
		[]route.Route{a.probes.Route()})
	c := s.listeners()
	api, follow, err := s.nodeAPI(ctx)
	if err != nil {
		return nil, err
	}
	c.Listeners = append(c.Listeners, api...)
	listeners, err := server.New(c)
	if err != nil {
		return nil, err
	}
	guard, err := watchdog.New(s.comesRound)
	if err != nil {
		return nil, err
	}
	out := append(follow, part.Of("watchdog", guard.Run), part.Of("pod resources", resources.Run),
		part.Of("statistics", a.stats.Run), part.Of("http server", listeners.Run))
	if *n.cfg.Kubelet.MakeIPTablesUtilChains {
		out = append(out, part.Of("iptables chains", firewall.New().Run))
	}
	return out, nil
}

// comesRound returns an error if the syncLoop is stuck.
func (s serving) comesRound() error {
	often := s.node.cfg.Kubelet.SyncFrequency.Duration
	return s.pods.loop.Healthy(time.Now(), max(2*often, 5*time.Minute))
}

// errRegistration is why the health check of device plugins fails.
var errRegistration = errors.New("the registration of device plugins is not served yet")

func (s serving) checks() []healthz.HealthChecker {
	return []healthz.HealthChecker{
		healthz.NamedCheck("syncloop", func(*http.Request) error { return s.comesRound() }),
		healthz.NamedCheck("sources", func(*http.Request) error {
			return s.pods.sources.Healthy(time.Now(), time.Minute)
		}),
		healthz.NamedCheck("pleg", func(*http.Request) error {
			return s.host.pleg.Healthy(time.Now())
		}),
		healthz.NamedCheck("device-plugin", func(*http.Request) error {
			select {
			case <-s.devices.Ready():
				return nil
			default:
				return errRegistration
			}
		}),
	}
}

// listeners are plain HTTP without authorization: the healthz port, which only has the health
// checks of every listener; the read-only port, where nothing changes anything; and the socket of
// the node's administrator.
func (s serving) listeners() server.Config {
	n, k := s.node, &s.node.cfg.Kubelet
	c := server.Config{Registry: n.registry, Checks: s.checks(), Trace: n.trace.Provider()}
	if *k.HealthzPort > 0 {
		c.Listeners = append(c.Listeners, server.Listener{
			Address: net.JoinHostPort(k.HealthzBindAddress, strconv.Itoa(int(*k.HealthzPort))),
			Settings: "healthzBindAddress or healthzPort (--healthz-bind-address, " +
				"--healthz-port)",
		})
	}
	if k.ReadOnlyPort > 0 {
		c.Listeners = append(c.Listeners, server.Listener{
			Address:  net.JoinHostPort(k.Address, strconv.Itoa(int(k.ReadOnlyPort))),
			Settings: "address or readOnlyPort (--address, --read-only-port)",
			Routes:   s.open, Type: server.ReadOnly,
		})
	}
	c.Listeners = append(c.Listeners, server.Listener{
		Address: filepath.Join(n.cfg.RootDir, devices.Socket), Settings: "--root-dir",
		Routes: slices.Concat(s.open, devices.Routes(s.devices.routes(n)),
			claims.Routes(s.contents.claims.Manager)),
	})
	return c
}

// openRoutes change nothing; the read-only port has them too.
func (s serving) openRoutes() []route.Route {
	n, p := s.node, s.pods
	return []route.Route{
		server.PodsRoute(p.statuses.List),
		server.MetricsRoute(n.registry),
		server.SLIRoute(),
		route.JSON("/placements", func() any { return s.Placements() }),
		route.JSON("/plugins", func() any { return s.devices.Peers() }),
		route.JSON("/problems", func() any { return s.Problems() }),
		devices.ListRoute(s.devices.routes(n)), devices.DriversRoute(s.devices.routes(n)),
		route.JSON("/csidrivers", func() any { return s.devices.csi.List() }),
		claims.ListRoute(s.contents.claims.Manager, s.devices.failures.Outlooks),
		n.events.Route(),
		fit.FreeRoute(p.queue),
		explain.Route(p.queue, n.name, p.statuses.Knows, s.remarks), s.shortageRoute(),
		fit.Route(p.queue, s.devices.Plugins, s.contents.claims.placer(n), n.cfg.RefuseUnknownFields,
			n.cfg.Enabled),
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
func (s serving) remarks(namespace, name string) (all explain.Remarks) {
	n, d, m, c := s.node, s.devices, s.contents.mounts, s.contents.claims
	for _, pod := range s.pods.statuses.AllNamed(namespace, name) {
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

// newPodResources tells monitoring agents who holds what.
func newPodResources(n node, d deviceDomain, c claimDomain, p podDomain) (
	*podresources.Server, error) {
	return podresources.New(podresources.Config{
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
	})
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
