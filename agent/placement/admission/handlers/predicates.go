package handlers

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// The kubelet's reasons for pods that do not belong on the node.
const (
	ReasonOS            = "PodOSNotSupported"
	ReasonOSLabel       = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonNodeAffinity  = "NodeAffinity"
	ReasonNodePorts     = "NodePorts"
	ReasonTaints        = "TaintToleration"
	ReasonAppArmor      = "AppArmor"
	ReasonGroupsPolicy  = "SupplementalGroupsPolicyNotSupported"
	predicateNodeLabels = "Predicate NodeAffinity failed: node(s) didn't match Pod's node " +
		"affinity/selector"
	predicatePorts = "Predicate NodePorts failed: node(s) didn't have free ports for the " +
		"requested pod ports"
	predicateTaints = "Predicate TaintToleration failed: node(s) had taints that the pod " +
		"didn't tolerate"
)

// OS refuses pods of another operating system than Linux.
func OS(a decide.Attempt) *decide.Refusal {
	const linux = "linux"
	if label, has := a.Pod.Labels[v1.LabelOSStable]; has && label != linux {
		return &decide.Refusal{Reason: ReasonOSLabel, Message: "Failed to admit pod as the " +
			"`kubernetes.io/os` label doesn't match node label"}
	}
	if os := a.Pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return &decide.Refusal{Reason: ReasonOS,
			Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// Affinity refuses pods whose node selector or required node affinity the node does not match.
func Affinity(a decide.Attempt) *decide.Refusal {
	if a.Node == nil {
		return nil
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(a.Pod).Match(a.Node)
	if match && err == nil {
		return nil
	}
	return &decide.Refusal{Reason: ReasonNodeAffinity, Message: predicateNodeLabels, Late: true,
		Stale: decide.StaleNode}
}

// Taints refuses pods that a taint with the effect NoExecute would drive off. Static pods stay. If
// compares, tolerations may compare numbers (TaintTolerationComparisonOperators).
func Taints(compares bool) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		if a.Node == nil || a.Static {
			return nil
		}
		_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(),
			a.Node.Spec.Taints, a.Pod.Spec.Tolerations,
			func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }, compares)
		if !untolerated {
			return nil
		}
		return &decide.Refusal{Reason: ReasonTaints, Message: predicateTaints, Late: true}
	}
}

// Ports refuses pods that take a port of the host which another pod has. If all of those go, the
// pod waits for them.
func Ports(a decide.Attempt) *decide.Refusal {
	if len(a.Ports) == 0 || a.Others == nil {
		return nil
	}
	var refusal *decide.Refusal
	for other := range a.Others {
		if !slices.ContainsFunc(a.Ports, func(p podspec.HostPort) bool {
			return slices.ContainsFunc(other.Ports, p.Conflicts)
		}) {
			continue
		}
		goes := other.Hold == allocation.Terminating
		refusal = &decide.Refusal{
			Reason: ReasonNodePorts, Message: predicatePorts, Wait: goes, Late: true}
		if !goes {
			break
		}
	}
	return refusal
}

// GroupsPolicy refuses pods whose supplementalGroupsPolicy the container runtime does not know.
func GroupsPolicy(supported bool) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		s := ptr.Deref(a.Pod.Spec.SecurityContext, v1.PodSecurityContext{})
		if supported || ptr.Deref(s.SupplementalGroupsPolicy, "") !=
			v1.SupplementalGroupsPolicyStrict {
			return nil
		}
		return &decide.Refusal{Reason: ReasonGroupsPolicy,
			Message: "SupplementalGroupsPolicy=Strict is not supported in this node"}
	}
}

// AppArmor refuses pods that want an AppArmor profile, on a host that enforces none.
func AppArmor(enforced bool) decide.Handler {
	return func(a decide.Attempt) *decide.Refusal {
		if enforced || !wantsAppArmor(a.Pod) {
			return nil
		}
		return &decide.Refusal{Reason: ReasonAppArmor,
			Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
}

// wantsAppArmor reports whether any profile is named, in a field or an annotation.
func wantsAppArmor(pod *v1.Pod) bool {
	confined := func(p *v1.AppArmorProfile) bool {
		return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined
	}
	if s := pod.Spec.SecurityContext; s != nil && confined(s.AppArmorProfile) {
		return true
	}
	for c := range podspec.Containers(pod) {
		if s := c.SecurityContext; s != nil && confined(s.AppArmorProfile) {
			return true
		}
		named := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if named != "" && named != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}
