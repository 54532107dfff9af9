package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	// reasonRestartingAll is the reason of a container whose record was removed for a restart of all
	// containers.
	reasonRestartingAll  = "RestartingAllContainers"
	messageRestartingAll = "The container is removed because RestartAllContainers in place"
	// reasonRestartAll is the reason of the condition.
	reasonRestartAll = "RestartAllContainersStarted"
)

// RestartAll returns the containers whose last exit asks for a restart of all containers of the pod
// (KEP-5532); empty: none. All containers must then run again in the pod's sandbox, init containers
// first. The restart is in progress while one of the records of these exits exists: they are
// removed last.
func RestartAll(pod *v1.Pod, observed cri.Pod) sets.Set[string] {
	out, seen := sets.New[string](), sets.New[string]()
	specs := map[string]*v1.Container{}
	for c := range podspec.Containers(pod) {
		if mayRestartAll(c) {
			specs[c.Name] = c
		}
	}
	for _, record := range observed.Containers { // the newest first
		c := specs[record.Name]
		if c == nil || seen.Has(record.Name) {
			continue
		}
		seen.Insert(record.Name)
		if record.State == cri.ContainerExited &&
			podspec.RestartRule(c, record.Exit.Code) == v1.ContainerRestartRuleActionRestartAllContainers {
			out.Insert(record.Name)
		}
	}
	return out
}

func mayRestartAll(c *v1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
		return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
	})
}

// restartingAll returns the condition of a pod with containers that may restart all.
func restartingAll(in Input, s v1.PodStatus) (c v1.PodCondition, has bool) {
	for one := range podspec.Containers(in.Pod) {
		has = has || mayRestartAll(one)
	}
	c = v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case s.Phase == v1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case in.derived.restarts.Len() > 0:
		c.Status, c.Reason = v1.ConditionTrue, reasonRestartAll
		c.Message = "container exited with restart policy rule"
	}
	return c, has
}

// restartsAll reports whether all containers of the pod are restarting, or the previous status said
// so: this is then why a container has no record any more.
func restartsAll(in Input) bool {
	was := conditionOf(in.Previous, v1.AllContainersRestarting)
	return in.derived.restarts.Len() > 0 || was != nil && was.Status == v1.ConditionTrue
}

// Attempt returns the attempt number of the next container, given the pod's status, if the last one
// has no record.
func Attempt(s v1.PodStatus, container string) uint32 {
	was := podspec.ByContainer(&s)[container]
	if was == nil {
		return 0
	}
	last, count := was.LastTerminationState.Terminated, uint32(max(was.RestartCount, 0))
	switch {
	case was.State.Waiting == nil:
		return count + 1
	case last == nil, last.Reason == ReasonStatusUnknown, last.Reason == reasonRestartingAll:
		return count // a lost one has been counted
	default:
		return count + 1
	}
}
