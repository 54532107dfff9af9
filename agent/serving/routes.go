package serving

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/serving/podresources"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/internal/version"
)

// errRegistration is why the health check of device plugins fails.
var errRegistration = errors.New("the registration of device plugins is not served yet")

func (s *Serving) checks() []healthz.HealthChecker {
	return []healthz.HealthChecker{
		healthz.NamedCheck("syncloop", func(*http.Request) error { return s.c.Pods.ComesRound() }),
		healthz.NamedCheck("sources", func(*http.Request) error {
			return s.c.Pods.Sources.Healthy(time.Now(), time.Minute)
		}),
		healthz.NamedCheck("pleg", func(*http.Request) error { return s.c.PLEG.Healthy(time.Now()) }),
		healthz.NamedCheck("device-plugin", func(*http.Request) error {
			select {
			case <-s.c.Placement.Plugins.Ready():
				return nil
			default:
				return errRegistration
			}
		}),
	}
}

// routes change nothing; the read-only port has them too.
func (s *Serving) routes() []route.Route {
	p, d := s.c.Pods, s.c.Placement
	return []route.Route{
		server.PodsRoute(p.List),
		route.JSON("/placements", func() any { return s.Placements() }),
		route.JSON("/plugins", func() any { return d.Plugins.Peers() }),
		route.JSON("/problems", func() any { return s.Problems() }),
		devices.ListRoute(d.Routes()), devices.DriversRoute(d.Routes()),
		route.JSON("/csidrivers", func() any { return s.c.Storage.Drivers.List() }),
		claims.ListRoute(d.Claims.Manager, d.Failures.Outlooks),
		route.JSON("/version", func() any { return version.Get() }),
		route.JSON("/machine", func() any { return s.c.Machine().Spec() }),
		s.c.Recorder.Route(),
		fit.FreeRoute(p.Queue, d.Routes().Supplies),
		explain.Route(p.Queue, s.c.Name, p.Knows, s.remarks), s.c.Evictions.Route(),
		fit.Route(p.Queue, d.Plugins, d.Placer(), s.c.Settings.RefuseUnknownFields, s.c.Settings.Enabled),
		s.c.Probes.Route(),
	}
}

// Problems lists what is wrong now with manifests, by source and name, and then with device
// plugins, by resource, and with volumes.
func (s *Serving) Problems() []complaint.Problem {
	d := s.c.Placement
	return slices.Concat(s.c.Pods.Problems.List(), devices.Problems(d.Plugins.Peers()),
		devices.DriverProblems(d.Drivers.List()), s.c.Storage.Problems())
}

// Placements says where every container of the node's pods is.
func (s *Serving) Placements() []assigned.Row {
	return assigned.Rows(assigned.Input{
		Hardware: s.c.Hardware.Get(), Pods: s.c.Pods.List(),
		Assigned: s.c.Placement.Store.State(), Shared: s.c.Resources.Loop.Shared(),
		Health: s.c.Placement.Plugins.Inventory().Health,
		Ill: func(d claim.Device) bool {
			health, _ := s.c.Placement.Drivers.Health.Of(d)
			return health == v1.ResourceHealthStatusUnhealthy
		},
	})
}

// remarks says what went wrong with the pods of a name, with their device plugins, with their volumes and
// the records of those, and which claims keep them.
func (s *Serving) remarks(namespace, name string) (all explain.Remarks) {
	d, mounts := s.c.Placement, s.c.Storage.Mounts
	for _, pod := range s.c.Pods.AllNamed(namespace, name) {
		one := explain.Amiss(pod, d.Plugins.Peers(), s.c.Settings.Kubelet.PodLogsDir, time.Now(),
			func() []string {
				return health.Amiss(pod, d.Store.State().Pods[pod.UID], health.Sources{
					Inventory: d.Plugins.Inventory(), Drivers: d.Drivers.Health}, d.Failures.Outlooks())
			})
		all.Plugins = append(all.Plugins, one.Plugins...)
		all.Since, all.Logs = append(all.Since, one.Since...), append(all.Logs, one.Logs...)
		all.Since = slices.Concat(all.Since, mounts.Amiss(pod.UID), mounts.Stuck(pod.UID))
		if d.Claims.Manager != nil {
			all.Since = append(all.Since, claims.Stuck(d.Claims.List(), pod.UID, time.Now())...)
		}
	}
	return all
}

// podResources tells monitoring agents who holds what.
func (s *Serving) podResources() podresources.Config {
	p, d := s.c.Pods, s.c.Placement
	return podresources.Config{
		Socket:   filepath.Join(s.c.Settings.RootDir, "pod-resources", "kubelet.sock"),
		Registry: s.c.Registry,
		Changed: mailbox.Subscribe(p.Changes(), d.Store.Changes(), d.Offered,
			s.c.Hardware.Changes()),
		Snapshot: func() podresources.Snapshot {
			h, state := s.c.Hardware.Get(), d.Store.State()
			now := podresources.Snapshot{
				Pods: p.Holding(func(uid types.UID) bool {
					_, has := state.Pods[uid]
					return has
				}),
				Assigned: state, Inventory: d.Plugins.Inventory(), Memory: h.Memory,
				Machine: h.Machine,
			}
			if d.Claims.Manager != nil {
				now.Claims = d.Claims.Prepared
			}
			if h.CPUs != nil {
				now.CPUs = h.CPUs.Free(cpuset.New()).Union(h.CPUs.Isolated())
			}
			return now
		},
	}
}
