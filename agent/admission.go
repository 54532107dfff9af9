package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/agent/serving/tracing"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/internal/mailbox"
)

// admissionEnds answer admission. A hollow node answers from memory.
type admissionEnds struct {
	node    clusterNode
	plugins admission.Plugins
	state   func() nodestatus.State
	// changed tells that plugins offer something else, the state is another, or pods that wait need
	// something else.
	changed []mailbox.Source
	// supports lists abilities of the runtime and the kernel.
	supports supports
	needs    admission.Needs  // nil: pods need nothing of the API server
	claims   admission.Claims // nil: pods have no resource claims
}

// supports lists abilities that not every runtime or kernel has.
type supports struct{ groupsPolicy, appArmor, mountOptions, usersOnHostNetwork bool }

// declared returns the features that the node declares.
func (can supports) declared(cfg *config.Config) []string {
	return nodestatus.DeclaredFeatures(cfg.Gates, types.RuntimeFeatures{
		MountOptions: can.mountOptions, UserNamespacesHostNetwork: can.usersOnHostNetwork})
}

// newQueue makes admission. Its outcomes go to decisions, and pods that make way for critical ones
// to events.
func newQueue(n node, decisions *mailbox.Box[report.Result],
	events *mailbox.Box[syncloop.Event], e admissionEnds) *admission.Queue {
	c, say := admissionConfig(n.self), report.Events{Recorder: n.events}
	c.Handlers = handlersOf(n.self, e.supports)
	c.Store, c.Plugins, c.Node = n.store, e.plugins, e.node.object
	c.Clustered = n.kube != nil
	c.Needs, c.Claims, c.State = e.needs, e.claims, e.state
	c.Reread = func(ctx context.Context, what decide.Stale) {
		if what == decide.StaleNode {
			e.node.reread(ctx)
			return
		}
		n.hardware.Reread(ctx)
	}
	c.Report = func(r report.Result) {
		n.metrics.Decided(r)
		n.trace.Decided(r.Pod.UID, string(r.Outcome), r.Reason, r.Message, r.Outcome == decide.Wait)
		say.Lack(r)
		decisions.Put(r)
	}
	c.Preempt = func(one report.Preemption) {
		n.metrics.Preempted(string(one.Resource))
		reason, message := say.Preempted(one)
		events.Put(syncloop.Killed(one.Victim.UID, pod.Why{Reason: reason, Message: message}, 0))
	}
	c.Unadvised = say.Unadvised
	return admission.New(c)
}

// traced is admission whose requests begin spans.
type traced struct {
	*admission.Queue
	trace *tracing.Tracing
}

// Submit implements syncloop.Admission.
func (t traced) Submit(pod *v1.Pod, adopt bool) {
	t.trace.Submitted(pod)
	t.Queue.Submit(pod, adopt)
}

// admissionConfig returns what the configuration and the hardware say of decisions.
func admissionConfig(s self) admission.Config {
	return admission.Config{
		Facts: admission.Facts{Hardware: s.hardware.Get}, Rules: s.rules, BootID: s.bootID,
		Wait: s.cfg.DevicePlugins.Wait,
	}
}

// handlersOf lists the checks before resources, in their order, of every node with this
// configuration.
func handlersOf(s self, can supports) []decide.Handler {
	compares := s.cfg.Enabled("TaintTolerationComparisonOperators")
	all := []decide.Handler{
		handlers.Flaws(s.cfg.Enabled), handlers.Pressure(compares), handlers.Placement(s.rules),
		handlers.Sysctls(s.cfg.Kubelet.AllowedUnsafeSysctls),
		handlers.OS, handlers.Affinity, handlers.Ports,
		handlers.Taints(compares),
		featuresOf(can.declared(s.cfg)).Refuse, handlers.Volumes(volume.Unsupported),
	}
	return append(all, handlers.GroupsPolicy(can.groupsPolicy), handlers.AppArmor(can.appArmor),
		handlers.Shutdown)
}

// featuresOf returns the features that the node declares, as of the kubelet's release that it is
// like.
func featuresOf(declared []string) handlers.Features {
	return handlers.NewFeatures(declared,
		version.MustParseGeneric(config.KubeletVersion))
}
