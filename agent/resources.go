package agent

import (
	"cmp"
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cpupool"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/podcgroups"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/mailbox"
)

// resourceDomain brings cgroups and containers in line with what pods were given.
type resourceDomain struct {
	groups *podcgroups.Groups
	pool   *cpupool.Pool
}

// newResources makes the cgroups above the pods, and what keeps those of containers.
func newResources(ctx context.Context, n node, h host, seen *lifecycle.Observer,
	pods *podstatus.Store) (r resourceDomain, err error) {
	r.groups = podcgroups.New(podcgroups.Config{
		Kubelet: &n.cfg.Kubelet, Tree: h.tree, Hardware: n.hardware.Get, State: n.store.State,
		Pod: pods.Get, Active: pods.Active,
	})
	if err := r.groups.Ensure(ctx); err != nil {
		return r, err
	}
	enforced := func(message string) {
		n.events.OnNode(v1.EventTypeNormal, "NodeAllocatableEnforced", message)
	}
	if h.tree != nil {
		enforced("Updated Node Allocatable limit across pods")
	}
	if err := r.groups.EnforceReserved(ctx, enforced); err != nil {
		n.events.OnNode(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", err.Error())
		return r, err
	}
	r.pool = newPool(n, h, seen, pods, r.groups.CPULimit)
	return r, nil
}

// newPool keeps the CPU sets, memory nodes and CPU quotas of containers.
func newPool(n node, h host, seen *lifecycle.Observer, pods *podstatus.Store,
	podLimit func(types.UID) cgroups.CPULimit) *cpupool.Pool {
	k := &n.cfg.Kubelet
	c := cpupool.Config{
		Hardware: n.hardware.Get, State: n.store.State,
		Runtime: h.client.Runtime(), Observer: seen,
		PodLimit: podLimit, Period: k.CPUManagerReconcilePeriod.Duration,
		Repaired: n.metrics.Repaired, Unread: n.metrics.Unread,
		Asked: func(uid types.UID, container string) (cpus int, known bool) {
			if pod, known := pods.Get(uid); known {
				return cpumanager.Unpadded(pod, container), true
			}
			return 0, false
		},
		Changed: mailbox.Subscribe(n.store.Changes(), n.hardware.Changes()),
	}
	if *k.CPUCFSQuota {
		period := cmp.Or(k.CPUCFSQuotaPeriod.Duration, cgroups.DefaultPeriod)
		c.Limit = func(cpus int) cgroups.CPULimit {
			return cgroups.CPULimit{
				Quota: cgroups.Quota(int64(cpus)*1000, period), Period: period.Microseconds(),
			}
		}
	}
	if h.tree != nil {
		c.Cgroups = h.tree
	}
	return cpupool.New(c)
}
