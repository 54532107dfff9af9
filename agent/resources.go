package agent

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/placement/resources"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

// resourceDomain brings cgroups and containers in line with what pods were given.
type resourceDomain struct {
	groups *resources.Groups
	loop   *resources.Loop
}

// newResources makes the cgroups above the pods, and the loop that keeps containers' cgroups.
func newResources(ctx context.Context, n node, h host, pods *podstatus.Store) (
	r resourceDomain, err error) {
	proc, err := kernel.NewProc("")
	if err != nil {
		return r, err
	}
	c := resources.GroupsConfig{
		Kubelet: &n.cfg.Kubelet, Tree: h.tree, Hardware: n.hardware.Get, Active: pods.Active,
		Processes: func() int64 {
			_, limit, err := proc.Threads()
			if err != nil {
				klog.FromContext(ctx).Info("The processes of all pods together have no limit", "err", err)
			}
			return limit
		},
		Tell: n.events.OnNode,
	}
	if n.cfg.Gates.Enabled("QOSReserved") {
		if c.Percent, err = config.ParseQOSReserved(n.cfg.Kubelet.QOSReserved); err != nil {
			return r, err
		}
	}
	r.groups = resources.NewGroups(c)
	if err := r.groups.Start(ctx); err != nil {
		return r, err
	}
	r.loop = newResourceLoop(n, h, pods)
	return r, nil
}

// newResourceLoop says what containers and pods are to have, and keeps it so.
func newResourceLoop(n node, h host, pods *podstatus.Store) *resources.Loop {
	k := &n.cfg.Kubelet
	c := resources.Config{
		Hardware: n.hardware.Get, State: n.store.State, Pod: pods.Get,
		Settings: resources.Settings{
			ResourceOptions: cri.ResourceOptions{
				NoQuota: !*k.CPUCFSQuota, Period: k.CPUCFSQuotaPeriod.Duration,
				OOMGroup: h.tree != nil && hostinfo.Unified() && !ptr.Deref(k.SingleProcessOOMKill, false),
				Swap:     hostinfo.Swap("/", k.MemorySwap.SwapBehavior == "LimitedSwap"),
				Memory:   cri.MemoryQoS{Unified: hostinfo.Unified(), MemoryQoS: memoryQoS(n.cfg)},
			},
			Pids: *k.PodPidsLimit,
		},
		Runtime: h.client.Runtime(), Observer: h.pleg,
		Period:   k.CPUManagerReconcilePeriod.Duration,
		Repaired: n.metrics.Cgroups.Repaired, Unread: n.metrics.Cgroups.Unread,
		Changed: mailbox.Subscribe(n.store.Changes(), n.hardware.Changes()),
	}
	if h.tree != nil {
		c.Cgroups = h.tree
	}
	return resources.New(c)
}
