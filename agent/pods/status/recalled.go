package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// Recalled returns own with what an earlier run of the agent reported of the same runs of the
// containers: that they have started and are ready. Later results of probes count more, from the
// next status on.
func Recalled(pod *v1.Pod, own, reported v1.PodStatus) v1.PodStatus {
	own.InitContainerStatuses = slices.Clone(own.InitContainerStatuses)
	own.ContainerStatuses = slices.Clone(own.ContainerStatuses)
	own.Conditions = slices.Clone(own.Conditions)
	was := podspec.ByContainer(&reported)
	for name, now := range podspec.ByContainer(&own) {
		before := was[name]
		if before == nil || before.ContainerID != now.ContainerID || now.State.Running == nil {
			continue
		}
		now.Started = ptr.To(ptr.Deref(now.Started, false) || ptr.Deref(before.Started, false))
		now.Ready = now.Ready || before.Ready
	}
	retell(pod, &own, reported)
	return own
}

// Unproven returns what an earlier run reported without what probes had found: that containers with such
// probes have started or are ready. The agent asks them anew (ChangeContainerStatusOnKubeletRestart).
func Unproven(pod *v1.Pod, reported v1.PodStatus) v1.PodStatus {
	if podspec.Ended(reported.Phase) || reported.Phase == "" {
		return reported
	}
	before := reported
	reported.InitContainerStatuses = slices.Clone(reported.InitContainerStatuses)
	reported.ContainerStatuses = slices.Clone(reported.ContainerStatuses)
	reported.Conditions = slices.Clone(reported.Conditions)
	statuses := podspec.ByContainer(&reported)
	for c := range podspec.Containers(pod) {
		s := statuses[c.Name]
		if s == nil || s.State.Running == nil {
			continue
		}
		if c.StartupProbe != nil {
			s.Started, s.Ready = ptr.To(false), false
		}
		s.Ready = s.Ready && c.ReadinessProbe == nil
	}
	retell(pod, &reported, before)
	return reported
}

// retell sets the conditions of readiness that follow from the statuses of the containers. An unchanged
// condition keeps its time.
func retell(pod *v1.Pod, own *v1.PodStatus, reported v1.PodStatus) {
	containers := containersReady(pod, *own)
	for _, c := range []v1.PodCondition{
		podReady(Input{Pod: pod, Previous: reported}, containers), containers,
	} {
		now, before := conditionOf(*own, c.Type), conditionOf(reported, c.Type)
		if now == nil {
			continue
		}
		now.Status, now.Reason, now.Message = c.Status, c.Reason, c.Message
		if before != nil && before.Status == c.Status {
			now.LastTransitionTime = before.LastTransitionTime
		}
	}
}
