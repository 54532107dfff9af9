package status

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// Reasons of waiting or lost containers that do not come from the runtime.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonPodInitializing   = "PodInitializing"
	ReasonStatusUnknown     = "ContainerStatusUnknown"
)

const (
	// lostExitCode stands for an exit that was not observed: killed (128 + SIGKILL).
	lostExitCode = 137
	// messageInitLost is the message of an init container without a record, if a later container has
	// one.
	messageInitLost = "Unable to get init container status from container runtime and pod has " +
		"been initialized, treat it as exited normally"
	// messageBudget bounds the termination messages of one pod in total, in bytes.
	messageBudget = 12 << 10
)

// tellContainers sets the statuses of the init containers, in their order, and of the others, by
// name.
func tellContainers(in Input, s *v1.PodStatus) {
	next := NextInit(in.Pod, in.Facts)
	for c, kind := range podspec.All(in.Pod) {
		one := containerStatus(in, c, kind)
		if kind == podspec.Ephemeral {
			one.Ready, one.Started = false, nil // nothing waits for it
			s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, one)
			continue
		}
		one.AllocatedResourcesStatus, one.VolumeMounts = devices(in, c.Name), volumeMounts(in, c)
		if kind == podspec.Regular {
			s.ContainerStatuses = append(s.ContainerStatuses, one)
			continue
		}
		if kind == podspec.Init {
			tellInit(in, &one, len(s.InitContainerStatuses) < next)
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, one)
	}
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.EphemeralContainerStatuses} {
		slices.SortFunc(list, func(a, b v1.ContainerStatus) int {
			return strings.Compare(a.Name, b.Name)
		})
	}
}

// tellInit completes the status of an init container that runs to its end; through is set if the
// pod has come further.
func tellInit(in Input, s *v1.ContainerStatus, through bool) {
	if through && s.State.Terminated == nil && in.derived.restarts.Len() == 0 {
		// Its record is gone, but a later container ran.
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: "Completed", Message: messageInitLost, ContainerID: s.ContainerID}}
	}
	end := s.State.Terminated
	s.Ready = end != nil && InitSucceeded(cri.Exit{Code: end.ExitCode, Reason: end.Reason})
}

// isStale reports whether the newest record of an init container belongs to a replaced sandbox: the
// container has yet to run.
func isStale(in Input, kind podspec.Kind, newest cri.Container) bool {
	return (kind == podspec.Init || kind == podspec.Sidecar) && len(in.Observed.Sandboxes) > 0 &&
		newest.SandboxID != in.Observed.Sandboxes[0].ID
}

func containerStatus(in Input, c *v1.Container, kind podspec.Kind) v1.ContainerStatus {
	records := in.derived.records[c.Name]
	if len(records) == 0 {
		return unseen(in, c)
	}
	newest := records[0]
	s := v1.ContainerStatus{
		Name:         c.Name,
		RestartCount: max(int32(newest.Attempt), wasCount(in.derived.was[c.Name])),
		Image:        newest.From.Image,
		ImageID:      newest.From.ImageRef,
		ContainerID:  containerID(in, newest),
		State:        stateOf(in, newest),
	}
	if len(records) > 1 {
		s.LastTerminationState = terminated(in, records[1])
	} else {
		s.LastTerminationState = lastTermination(in.derived.was[c.Name], s.ContainerID)
	}
	tellApplied(in, &s, c, newest)
	why, waits := in.Waiting[c.Name]
	if waits && s.State.Running != nil { // its postStart hook has not succeeded yet
		s.State = v1.ContainerState{}
	}
	if s.State.Terminated != nil && (waits || isStale(in, kind, newest)) {
		s.LastTerminationState = s.State
		s.State = v1.ContainerState{}
	}
	if s.State.Running == nil && s.State.Terminated == nil {
		s.State = waiting(in, why)
	}
	started, ready := false, false
	if s.State.Running != nil {
		started, ready = in.probed(c, newest.ID)
	}
	s.Started, s.Ready = &started, ready
	settle(in, &s)
	return s
}

func wasCount(was *v1.ContainerStatus) int32 {
	if was == nil {
		return 0
	}
	return was.RestartCount
}

// lastTermination returns the termination before the container with that id, which has no record any more,
// from the previous status.
func lastTermination(was *v1.ContainerStatus, id string) v1.ContainerState {
	switch {
	case was == nil:
		return v1.ContainerState{}
	case was.ContainerID != id && was.State.Terminated != nil:
		return was.State
	default:
		return was.LastTerminationState
	}
}

func stateOf(in Input, record cri.Container) v1.ContainerState {
	switch record.State {
	case cri.ContainerRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{
			StartedAt: seconds(record.StartedAt)}}
	case cri.ContainerUnknown:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
			Reason: ReasonStatusUnknown}}
	default: // the API has no state for Created
		return terminated(in, record)
	}
}

func terminated(in Input, record cri.Container) v1.ContainerState {
	if record.State != cri.ContainerExited {
		return v1.ContainerState{}
	}
	message := record.Exit.Message
	if m, ok := in.Messages[record.ID]; ok {
		message = m
	}
	containers := len(in.Pod.Spec.Containers) + len(in.Pod.Spec.InitContainers) +
		len(in.Pod.Spec.EphemeralContainers)
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode:    record.Exit.Code,
		Reason:      record.Exit.Reason,
		Message:     oneline.Head(message, messageBudget/max(containers, 1)),
		StartedAt:   seconds(record.StartedAt),
		FinishedAt:  seconds(record.Exit.At),
		ContainerID: containerID(in, record),
	}}
}

func waiting(in Input, why Reason) v1.ContainerState {
	if why.Reason == "" {
		why.Reason = ReasonContainerCreating
		if len(in.Pod.Spec.InitContainers) > 0 {
			why.Reason = ReasonPodInitializing
		}
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
		Reason: why.Reason, Message: why.Message}}
}

// unseen returns the status of a container without a record: it has yet to run, or the runtime lost
// it, which only the previous status can tell.
func unseen(in Input, c *v1.Container) v1.ContainerStatus {
	s := v1.ContainerStatus{
		Name: c.Name, Image: c.Image, Started: ptr.To(false),
		State: waiting(in, in.Waiting[c.Name]),
	}
	was := in.derived.was[c.Name]
	if was == nil {
		settle(in, &s)
		return s
	}
	s.RestartCount = was.RestartCount
	s.LastTerminationState = was.LastTerminationState
	switch {
	case was.State.Waiting == nil && restartsAll(in):
		s.RestartCount++
		s.State = waiting(in, Reason{reasonRestartingAll, messageRestartingAll})
		s.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: lostExitCode, Reason: reasonRestartingAll, Message: messageRestartingAll}}
	case was.State.Terminated != nil:
		carry(&s, was)
		if _, waits := in.Waiting[c.Name]; waits {
			s.LastTerminationState = was.State
		} else {
			s.State = was.State
		}
	case was.State.Running != nil:
		carry(&s, was)
		s.LastTerminationState = lost(was.ContainerID, "The container could not be located "+
			"when the pod was deleted. The container used to be Running")
		if !in.Stop.Terminating {
			s.RestartCount++
		}
	}
	settle(in, &s)
	return s
}

// settle gives a container of a finished pod an end, even one that was not observed, unless the pod
// failed before its turn.
func settle(in Input, s *v1.ContainerStatus) {
	if !in.Stop.Finished || s.State.Terminated != nil {
		return
	}
	if s.ContainerID == "" && s.LastTerminationState.Terminated == nil && in.derived.uninitialized {
		return // its turn never came
	}
	if s.State.Waiting != nil && s.LastTerminationState.Terminated != nil {
		s.State, s.LastTerminationState = s.LastTerminationState, v1.ContainerState{}
	} else {
		s.State = lost(s.ContainerID,
			"The container could not be located when the pod was terminated")
	}
	s.Ready, s.Started = false, ptr.To(false)
}

func lost(id, message string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: lostExitCode, Reason: ReasonStatusUnknown, Message: message, ContainerID: id}}
}

func containerID(in Input, record cri.Container) string {
	return in.Node.Runtime + "://" + record.ID
}
