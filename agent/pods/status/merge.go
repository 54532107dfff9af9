package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Merge returns the status that the API server should have, given that it has api and the node
// wants own: what others write there stays, a final phase stays, and conditions that did not change
// keep their time.
func Merge(api, own v1.PodStatus) v1.PodStatus {
	out := Adopt(own, api)
	if podspec.Ended(api.Phase) {
		out.Phase = api.Phase
		if !podspec.Ended(own.Phase) {
			out.Reason, out.Message = api.Reason, api.Message
		}
	}
	if api.StartTime != nil {
		out.StartTime = api.StartTime
	}
	if api.QOSClass != "" { // immutable
		out.QOSClass = api.QOSClass
	}
	for i := range out.Conditions {
		c := &out.Conditions[i]
		if was := conditionOf(api, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return out
}

// Adopt returns own with what others write to a pod's status, from api: foreign conditions, claims,
// resizes. Once the pod has ended, the node's own DisruptionTarget counts; before that, others'
// does.
func Adopt(own, api v1.PodStatus) v1.PodStatus {
	disrupts := func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && podspec.Ended(own.Phase)
	}
	var conditions []v1.PodCondition
	for _, c := range own.Conditions {
		if owned(c.Type) || disrupts(c) {
			conditions = append(conditions, c)
		}
	}
	own.Conditions = conditions
	for _, c := range api.Conditions {
		if !owned(c.Type) && conditionOf(own, c.Type) == nil {
			own.Conditions = append(own.Conditions, c)
		}
	}
	own.NominatedNodeName = api.NominatedNodeName
	own.Resize = api.Resize
	own.ResourceClaimStatuses = api.ResourceClaimStatuses
	own.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	own.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	own.VolumeHealth = api.VolumeHealth
	return own
}

// GatesDiffer reports whether the conditions of the pod's readiness gates differ between both
// statuses.
func GatesDiffer(pod *v1.Pod, a, b v1.PodStatus) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates, func(g v1.PodReadinessGate) bool {
		x, y := conditionOf(a, g.ConditionType), conditionOf(b, g.ConditionType)
		return (x == nil) != (y == nil) || x != nil && x.Status != y.Status
	})
}

// First returns the status of a pod that is desired and not observed yet, with what Anew kept of an
// earlier life. If the API server or an earlier run of the agent (Previous) had a status, it stays
// until the worker has observed the pod. The host's address appears only for pods that were
// admitted.
func First(in Input) v1.PodStatus {
	for _, known := range []v1.PodStatus{in.Pod.Status, in.Previous} {
		if known.StartTime != nil && known.Phase != "" {
			return known
		}
	}
	if len(in.Previous.ContainerStatuses) == 0 {
		in.Previous = in.Pod.Status
	}
	s := Generate(in)
	s.HostIP, s.HostIPs = in.Pod.Status.HostIP, in.Pod.Status.HostIPs
	return s
}

// Anew returns what is kept of a pod that is desired again before it was forgotten: the restart
// counts and last terminations of its containers.
func Anew(was v1.PodStatus) v1.PodStatus {
	kept := func(all []v1.ContainerStatus) (out []v1.ContainerStatus) {
		for _, c := range all {
			last := c.LastTerminationState
			if c.State.Terminated != nil {
				last = c.State
			}
			out = append(out, v1.ContainerStatus{
				Name: c.Name, RestartCount: c.RestartCount, LastTerminationState: last})
		}
		return out
	}
	return v1.PodStatus{ContainerStatuses: kept(was.ContainerStatuses),
		InitContainerStatuses: kept(was.InitContainerStatuses)}
}
