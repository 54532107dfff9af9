package placement

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/storage/volume"
)

// QueueConfig has what answers admission, on a hollow node from memory, and who hears of its outcomes. None of
// its functions may block but Reread.
type QueueConfig struct {
	node.Node
	Store   *store.Store
	Plugins admission.Plugins
	State   func() nodestatus.State
	// Object returns the node's object, and Reread gets it anew; Clustered: the API server has it.
	Object    func() *v1.Node
	Reread    func(context.Context)
	Clustered bool
	Supports  node.Supports
	Needs     admission.Needs  // nil: pods need nothing of the API server
	Claims    admission.Claims // nil: pods have no resource claims

	// Decided gets each outcome, and Preempt has a pod end that makes way for a critical one.
	Decided func(report.Result)
	Preempt func(of report.Preemption, reason, message string)
}

// NewQueue makes admission.
func NewQueue(q QueueConfig) *admission.Queue { return admission.New(q.admission()) }

func (q QueueConfig) admission() admission.Config {
	c, say := decisions(q.Identity), report.Events{Recorder: q.Events}
	c.Handlers = Handlers(q.Identity, q.Supports)
	c.Store, c.Plugins, c.Node, c.Clustered = q.Store, q.Plugins, q.Object, q.Clustered
	c.Needs, c.Claims, c.State = q.Needs, q.Claims, q.State
	c.Reread = func(ctx context.Context, what decide.Stale) {
		if what == decide.StaleNode {
			q.Reread(ctx)
			return
		}
		q.Hardware.Reread(ctx)
	}
	c.Report = func(r report.Result) {
		say.Lack(r)
		q.Decided(r)
	}
	c.Preempt = func(one report.Preemption) {
		reason, message := say.Preempted(one)
		q.Preempt(one, reason, message)
	}
	c.Unadvised = say.Unadvised
	return c
}

// decisions returns what the settings and the hardware say of decisions.
func decisions(i node.Identity) admission.Config {
	k := &i.Settings.Kubelet
	return admission.Config{
		Facts: admission.Facts{Hardware: i.Hardware.Get}, Rules: i.Rules, BootID: i.BootID,
		Wait: i.Settings.DevicePlugins.Wait,
		ResizeRule: resize.Rules{
			StaticCPUs: k.CPUManagerPolicy == "static", StaticMemory: k.MemoryManagerPolicy == "Static",
			Unified: hostinfo.Unified(), PodGroups: *k.CgroupsPerQOS,
			Enabled: i.Enabled, Swaps: hostinfo.Swap("/", k.MemorySwap.SwapBehavior == "LimitedSwap").Allows,
		}.Check,
		ResizePreempts: !i.Enabled("InPlacePodVerticalScalingSchedulerPreemption"),
	}
}

// Handlers lists the checks before resources, in their order, of every node with these settings.
func Handlers(i node.Identity, can node.Supports) []decide.Handler {
	compares := i.Enabled("TaintTolerationComparisonOperators")
	return []decide.Handler{
		handlers.Flaws(i.Settings.Enabled), handlers.Pressure(compares), handlers.Placement,
		handlers.Sysctls(i.Settings.Kubelet.AllowedUnsafeSysctls),
		handlers.OS, handlers.Affinity, handlers.Ports,
		handlers.Taints(compares),
		Features(i, can).Refuse, handlers.Volumes(volume.Unsupported),
		handlers.GroupsPolicy(can.GroupsPolicy), handlers.AppArmor(can.AppArmor),
		handlers.Shutdown,
	}
}

// Features returns the features that the node declares, as of the kubelet's release that it is like.
func Features(i node.Identity, can node.Supports) handlers.Features {
	return handlers.NewFeatures(i.Declared(can), version.MustParseGeneric(config.KubeletVersion))
}
