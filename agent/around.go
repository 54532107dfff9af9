package agent

import (
	"context"
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

	"github.com/numalet/numalet/agent/checkpoints"
	"github.com/numalet/numalet/agent/devices"
	"github.com/numalet/numalet/agent/explain"
	"github.com/numalet/numalet/agent/fit"
	"github.com/numalet/numalet/agent/footprint"
	"github.com/numalet/numalet/agent/health"
	"github.com/numalet/numalet/agent/housekeeping"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/podresources"
	"github.com/numalet/numalet/agent/resize"
	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/syncloop"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/internal/mailbox"
)

// housekeepingPeriod is the kubelet's.
const housekeepingPeriod = 2 * time.Second

// newHealth follows the hardware that pods hold.
func newHealth(n node, p parts) *health.Follower {
	return health.New(health.Config{
		Hardware: n.hardware.Get, State: n.store.State, Inventory: p.plugins.Inventory,
		Pod: p.statuses.Get, Status: p.statuses.Status, Refresh: p.workers.Wake, Tell: n.events.Pod,
		Devices: tellsDevices(n), Unified: unified(),
	})
}

// newCheckpoints keeps the kubelet's files, and reads them before the first pod is decided on.
func newCheckpoints(n node, p parts, inventory mailbox.Source,
	admitted resize.Admitted) *checkpoints.Checkpoints {
	return checkpoints.New(checkpoints.Config{
		Root: n.cfg.RootDir, DeviceDir: deviceDir(n.cfg.RootDir), BootID: n.host.bootID,
		Store: n.store, Running: p.observer.All, Hardware: n.hardware.Get,
		Inventory: p.plugins.Inventory, Tell: n.events.OnNode, Lasting: p.sources.Lasting,
		Admitted: admitted, Active: p.statuses.Active,
		Changed: mailbox.Subscribe(n.store.Changes(), p.statuses.Changes(), inventory,
			n.hardware.Changes()),
	})
}

// newHousekeeping is the table of what is done from time to time, or soon after something changed.
func newHousekeeping(n node, p parts, l *links,
	volumes *volume.Volumes) *housekeeping.Housekeeping {
	orphans := housekeeping.Orphans{
		Running: p.observer.All, Assigned: n.store.State,
		Directories: func() ([]types.UID, error) { return volumes.Orphans(nil) },
		Cgroups: func() ([]types.UID, error) {
			if n.tree == nil || n.runtime.others.Run() { // else it may be one of theirs
				return nil, nil
			}
			return n.tree.Orphans(func(types.UID) bool { return false })
		},
		Known: func(uid types.UID) bool {
			_, known := p.statuses.Get(uid)
			return known
		},
		Found: func(o *v1.Pod) {
			l.events.Put(syncloop.Event{UID: o.UID, Event: pod.Event{Kind: pod.Orphaned, Pod: o}})
		},
	}
	machine, pods := n.hardware.Changes(), p.statuses.Changes()
	return housekeeping.New(
		housekeeping.Task{
			Name: "cgroups above the pods", Period: housekeepingPeriod,
			On: []mailbox.Source{machine, pods}, Run: p.cgroups.Update,
		},
		housekeeping.Task{
			Name: "health of what pods hold", Period: time.Minute,
			On:  []mailbox.Source{machine, pods, &l.inventory, n.store.Changes()},
			Run: newHealth(n, p).Look,
		},
		housekeeping.Task{Name: "orphaned pods", Period: housekeepingPeriod, Run: orphans.Find},
		housekeeping.Task{Name: "memory of the agent", Period: time.Minute, Run: footprint.LetGo},
		housekeeping.Task{
			Name: "gauges", Period: time.Minute,
			On: []mailbox.Source{machine, pods, n.store.Changes()},
			Run: func(context.Context) error {
				measure(n, p)
				return nil
			},
		},
	)
}

// measure brings the gauges up to date.
func measure(n node, p parts) {
	var exclusive, available cpuset.CPUSet // without the static policy none, as the kubelet says
	h := n.hardware.Get()
	if h.CPUs != nil {
		exclusive = n.store.State().CPUs()
		available = p.pool.Shared().Difference(h.CPUs.Reserved())
	}
	p.metrics.CPUs(h.Machine, exclusive, available)
	p.metrics.Placed(n.store.State().List())
	p.metrics.Pods(p.statuses.Specs(), p.statuses.Active())
}

// newPodResources tells monitoring agents who holds what.
func newPodResources(n node, p parts, inventory mailbox.Source) (*podresources.Server, error) {
	return podresources.New(podresources.Config{
		Socket:   filepath.Join(n.cfg.RootDir, "pod-resources", "kubelet.sock"),
		Registry: n.registry,
		Changed: mailbox.Subscribe(p.statuses.Changes(), n.store.Changes(), inventory,
			n.hardware.Changes()),
		Snapshot: func() podresources.Snapshot {
			h, state := n.hardware.Get(), n.store.State()
			s := podresources.Snapshot{
				Pods: p.statuses.Holding(func(uid types.UID) bool {
					_, has := state.Pods[uid]
					return has
				}),
				Assigned:  state,
				Inventory: p.plugins.Inventory(), Memory: h.Memory,
			}
			if h.CPUs != nil {
				s.CPUs = h.CPUs.Free(cpuset.New()).Union(h.CPUs.Isolated())
			}
			return s
		},
	})
}

// comesRound is an error when the syncLoop is stuck.
func comesRound(n node, loop *syncloop.Loop) error {
	often := n.cfg.Kubelet.SyncFrequency.Duration
	return loop.Healthy(time.Now(), max(2*often, 5*time.Minute))
}

// newListeners are the healthz port, which has nothing but the health checks of every listener, and
// the read-only port, which are plain HTTP without authorization, and where nothing changes anything;
// and the socket of the node's administrator.
func newListeners(n node, p parts, loop *syncloop.Loop, open []server.Route) server.Config {
	k := &n.cfg.Kubelet
	c := server.Config{Registry: n.registry, Checks: []healthz.HealthChecker{
		healthz.NamedCheck("syncloop", func(*http.Request) error {
			return comesRound(n, loop)
		}),
		healthz.NamedCheck("sources", func(*http.Request) error {
			return p.sources.Healthy(time.Now(), time.Minute)
		}),
		healthz.NamedCheck("pleg", func(*http.Request) error {
			return p.observer.Healthy(time.Now())
		}),
		healthz.NamedCheck("device-plugin", func(*http.Request) error {
			select {
			case <-p.plugins.Ready():
				return nil
			default:
				return errRegistration
			}
		}),
	}}
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
			Routes:   open, Type: server.ReadOnly,
		})
	}
	c.Listeners = append(c.Listeners, server.Listener{
		Address: filepath.Join(n.cfg.RootDir, devices.Socket), Settings: "--root-dir",
		Routes: slices.Concat(open, devices.Routes(deviceConfig(n, p))),
	})
	return c
}

func deviceConfig(n node, p parts) devices.Config {
	return devices.Config{Plugins: p.plugins, State: n.store.State, Tell: n.events.OnNode}
}

// openRoutes change nothing, and are on the read-only port too.
func openRoutes(n node, p parts) []server.Route {
	return []server.Route{
		server.PodsRoute(p.statuses.List),
		server.MetricsRoute(n.registry),
		server.SLIRoute(),
		server.JSONRoute("/placements", func() any { return placements(n, p) }),
		server.JSONRoute("/plugins", func() any { return p.plugins.Peers() }),
		server.JSONRoute("/problems", func() any { return problems(p) }),
		devices.ListRoute(deviceConfig(n, p)),
		n.events.Route(),
		fit.FreeRoute(p.queue),
		explain.Route(p.queue, n.name, p.knows,
			func(namespace, name string) explain.Remarks { return amiss(n, p, namespace, name) }),
		fit.Route(p.queue, p.plugins, n.cfg.RefuseUnknownFields),
	}
}

// knows reports whether there is a pod of that name, whatever has become of it.
func (p parts) knows(namespace, name string) bool {
	return slices.ContainsFunc(p.statuses.Specs(), func(pod *v1.Pod) bool {
		return pod.Namespace == namespace && pod.Name == name
	})
}

// placements says where every container of the node's pods is.
func placements(n node, p parts) []placement.Row {
	return placement.Rows(placement.Input{
		Hardware: n.hardware.Get(), Pods: p.statuses.List(), Assigned: n.store.State(),
		Shared: p.pool.Shared(), Health: p.plugins.Inventory().Health,
	})
}
