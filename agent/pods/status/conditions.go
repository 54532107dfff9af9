package status

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// The reasons of conditions.
const (
	reasonSandboxNotReady        = "PodSandboxNotReady"
	reasonContainersUninit       = "ContainersNotInitialized"
	reasonContainersNotReady     = "ContainersNotReady"
	reasonPodCompleted           = "PodCompleted"
	reasonPodFailed              = "PodFailed"
	reasonReadinessGatesNotReady = "ReadinessGatesNotReady"
	// reasonTerminating is ours: under a kubelet a pod that the node ends stays ready.
	reasonTerminating = "Terminating"
)

// disrupted returns the condition of a pod that the node ended for a reason of its own. is reports
// whether it applies: the pod has ended. As for the kubelet, it is no disruption if the pod exceeded a
// limit of its own.
func disrupted(in Input, s v1.PodStatus) (c v1.PodCondition, is bool) {
	c = v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
		Reason:  v1.PodReasonTerminationByKubelet,
		Message: "Pod was preempted by Kubelet to accommodate a critical pod."}
	switch in.Stop.Why.Reason {
	case podspec.ReasonPreempting:
	case podspec.ReasonEvicted, podspec.ReasonShutdown, podspec.ReasonDeviceFailed:
		c.Message = s.Message
	default:
		return c, false
	}
	return c, s.Phase == v1.PodFailed && !in.Stop.OwnLimit
}

// owned reports whether the agent owns a condition type; other conditions stay as they are.
func owned(t v1.PodConditionType) bool {
	switch t {
	case v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady,
		v1.PodScheduled, v1.AllContainersRestarting, v1.PodResizePending, v1.PodResizeInProgress:
		return true
	default:
		return false
	}
}

// TellsOfResize reports whether the pod's status already says that its present resize is pending, and why.
func TellsOfResize(pod *v1.Pod, reason, why string) bool {
	c := conditionOf(pod.Status, v1.PodResizePending)
	return c != nil && c.Reason == reason && c.Message == why && c.ObservedGeneration == pod.Generation
}

// ResizeInProgress returns the condition that a resize is being carried out; nil: none is.
func ResizeInProgress(s *v1.PodStatus) *v1.PodCondition {
	return conditionOf(*s, v1.PodResizeInProgress)
}

// resizing are the conditions of a pod whose resources change.
func resizing(in Input) (out []v1.PodCondition) {
	if why := in.Resize.Pending; why.Reason != "" {
		out = append(out, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue,
			Reason: why.Reason, Message: why.Message})
	}
	if in.Resize.InProgress {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}
		if in.Resize.Error != "" {
			c.Reason, c.Message = v1.PodReasonError, in.Resize.Error
		}
		out = append(out, c)
	}
	return out
}

// conditions returns the conditions of a pod in this phase, which its status may not tell yet.
func conditions(in Input, s v1.PodStatus, phase v1.PodPhase) []v1.PodCondition {
	s.Phase = phase
	containers := containersReady(in.Pod, s)
	if in.Stop.Unready && containers.Status == v1.ConditionTrue {
		containers.Status, containers.Reason = v1.ConditionFalse, reasonTerminating
		containers.Message = "the node ends the pod"
	}
	out := []v1.PodCondition{
		sandboxReady(in),
		initialized(in, s),
		podReady(in, containers),
		containers,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	if c, has := restartingAll(in, s); has {
		out = append(out, c)
	}
	if !podspec.Ended(s.Phase) {
		out = append(out, resizing(in)...)
	}
	if c, is := disrupted(in, s); is {
		out = append(out, c)
	}
	for i := range out {
		out[i].ObservedGeneration = in.Pod.Generation
		if out[i].Type == v1.PodResizeInProgress {
			out[i].ObservedGeneration = in.Resize.Generation
		}
		out[i].LastTransitionTime = seconds(in.Now)
		if was := conditionOf(in.Previous, out[i].Type); was != nil && was.Status == out[i].Status {
			out[i].LastTransitionTime = was.LastTransitionTime
		}
	}
	for _, was := range in.Previous.Conditions {
		if !owned(was.Type) && !slices.ContainsFunc(out,
			func(c v1.PodCondition) bool { return c.Type == was.Type }) {
			out = append(out, was)
		}
	}
	return out
}

func sandboxReady(in Input) v1.PodCondition {
	if problem := SandboxProblem(in.Pod, in.Observed); problem != "" {
		return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse,
			Reason: reasonSandboxNotReady, Message: problem}
	}
	return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}
}

// initialized stays true: a pod whose init containers run again has been initialized before.
func initialized(in Input, s v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if s.Phase == v1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	for _, container := range s.ContainerStatuses {
		if container.State.Running != nil || container.State.Terminated != nil {
			return c
		}
	}
	was := conditionOf(in.Previous, v1.PodInitialized)
	if open := unready(s.InitContainerStatuses); len(open) > 0 &&
		(was == nil || was.Status != v1.ConditionTrue) {
		c.Status, c.Reason = v1.ConditionFalse, reasonContainersUninit
		c.Message = fmt.Sprint("containers with incomplete status: ", open)
	}
	return c
}

func containersReady(pod *v1.Pod, s v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	switch s.Phase {
	case v1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case v1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	}
	open := unready(sidecarStatuses(pod, s))
	statuses := podspec.ByContainer(&s)
	for i := range pod.Spec.Containers { // in the order of the spec
		name := pod.Spec.Containers[i].Name
		if status := statuses[name]; status == nil || !status.Ready {
			open = append(open, name)
		}
	}
	if len(open) == 0 {
		c.Status = v1.ConditionTrue
		return c
	}
	c.Reason = reasonContainersNotReady
	c.Message = fmt.Sprint("containers with unready status: ", open)
	return c
}

// podReady combines the readiness of the containers with the pod's readiness gates, which others
// set as conditions.
func podReady(in Input, containers v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range in.Pod.Spec.ReadinessGates {
		was := conditionOf(in.Previous, gate.ConditionType)
		switch {
		case was == nil:
			closed = append(closed, fmt.Sprintf(
				"corresponding condition of pod readiness gate %q does not exist.",
				gate.ConditionType))
		case was.Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf(
				"the status of pod readiness gate %q is not \"True\", but %v",
				gate.ConditionType, was.Status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason = v1.ConditionFalse, reasonReadinessGatesNotReady
		c.Message = strings.Join(closed, ", ")
	}
	return c
}

func sidecarStatuses(pod *v1.Pod, s v1.PodStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range pod.Spec.InitContainers {
		if podspec.IsSidecar(&pod.Spec.InitContainers[i]) && i < len(s.InitContainerStatuses) {
			out = append(out, s.InitContainerStatuses[i])
		}
	}
	return out
}

func unready(statuses []v1.ContainerStatus) []string {
	var out []string
	for _, s := range statuses {
		if !s.Ready {
			out = append(out, s.Name)
		}
	}
	return out
}

func conditionOf(s v1.PodStatus, t v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}
