package placement

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/placement/resources"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Resources brings cgroups and containers in line with what pods were given.
type Resources struct {
	Groups *resources.Groups
	Loop   *resources.Loop
}

// ResourcesConfig says whose resources they are, and who counts repairs.
type ResourcesConfig struct {
	// Active lists the admitted pods that have not ended, and Get returns a pod.
	Active   func() []*v1.Pod
	Get      func(types.UID) (*v1.Pod, bool)
	Observer resources.Observer
	Repaired func(resources.Kind)
	Unread   func()
	// Had returns what ran of a pod when the agent started.
	Had func(types.UID) *podspec.Resources
	// Settled hears of pods that the loop was to follow.
	Settled func(types.UID, error)
	// ResizeVolume gives an emptyDir in memory another size in bytes.
	ResizeVolume func(pod types.UID, volume string, size int64) error
}

// NewResources makes the cgroups above the pods, and the loop that keeps containers' cgroups.
func (p *Placement) NewResources(ctx context.Context, of ResourcesConfig) (r Resources, err error) {
	proc, err := kernel.NewProc("")
	if err != nil {
		return r, err
	}
	k := &p.Settings.Kubelet
	c := resources.GroupsConfig{
		Kubelet: k, Tree: p.Tree, Hardware: p.Hardware.Get, Active: of.Active,
		Processes: func() int64 {
			_, limit, err := proc.Threads()
			if err != nil {
				klog.FromContext(ctx).Info("The processes of all pods together have no limit", "err", err)
			}
			return limit
		},
		Tell: p.Events.OnNode,
	}
	if c.Percent, err = p.qosReserved(); err != nil {
		return r, err
	}
	r.Groups = resources.NewGroups(c)
	if err := r.Groups.Start(ctx); err != nil {
		return r, err
	}
	r.Loop = p.loop(of)
	return r, nil
}

// qosReserved returns how much of the memory that pods request is kept from lower QoS classes, in percent.
func (p *Placement) qosReserved() (percent int64, err error) {
	if !p.Enabled("QOSReserved") {
		return 0, nil
	}
	return config.ParseQOSReserved(p.Settings.Kubelet.QOSReserved)
}

// loop says what containers and pods are to have, and keeps it so.
func (p *Placement) loop(of ResourcesConfig) *resources.Loop {
	k := &p.Settings.Kubelet
	c := resources.Config{
		Hardware: p.Hardware.Get, State: p.Store.State, Pod: of.Get,
		Settings: resources.Settings{
			ResourceOptions: cri.ResourceOptions{
				NoQuota: !*k.CPUCFSQuota, Period: k.CPUCFSQuotaPeriod.Duration,
				OOMGroup: p.Tree != nil && hostinfo.Unified() && !ptr.Deref(k.SingleProcessOOMKill, false),
				Swap:     hostinfo.Swap("/", k.MemorySwap.SwapBehavior == "LimitedSwap"),
				Memory:   cri.MemoryQoS{Unified: hostinfo.Unified(), MemoryQoS: p.MemoryQoS()},
			},
			Pids:           *k.PodPidsLimit,
			ResizesVolumes: p.Enabled("InPlacePodVerticalScalingMemoryBackedVolumes") && hostinfo.Unified(),
		},
		Runtime: p.Client.Runtime(), Observer: of.Observer,
		Period:   k.CPUManagerReconcilePeriod.Duration,
		Repaired: of.Repaired, Unread: of.Unread, Settled: of.Settled, Had: of.Had,
		ResizeVolume: of.ResizeVolume,
		Changed:      mailbox.Subscribe(p.Store.Changes(), p.Hardware.Changes()),
	}
	if p.Tree != nil {
		c.Cgroups = p.Tree
	}
	return resources.New(c)
}
