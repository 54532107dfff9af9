package logs

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/status"
)

// which is the id of the container, by the pod's status, whose log is meant: the one that runs, or
// ran last; previous: the one before. The error says why there is no log.
func which(pod *v1.Pod, name string, previous bool) (string, error) {
	c := status.ByContainer(&pod.Status)[name]
	if c == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", name, pod.Name)
	}
	state, last := c.State, c.LastTerminationState
	switch {
	case previous:
		if last.Terminated == nil || last.Terminated.ContainerID == "" {
			return "", fmt.Errorf("previous terminated container %q in pod %q not found", name,
				pod.Name)
		}
		return bare(last.Terminated.ContainerID), nil
	case state.Running != nil:
		return bare(c.ContainerID), nil
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		return bare(state.Terminated.ContainerID), nil
	case last.Terminated != nil && last.Terminated.ContainerID != "":
		return bare(last.Terminated.ContainerID), nil
	case state.Terminated != nil || last.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, pod.Name)
	case state.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Name,
			waits(state.Waiting.Reason))
	default:
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name,
			pod.Name)
	}
}

// waits says in words what a container waits for.
func waits(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	default:
		return reason
	}
}

// bare is a container's id without the runtime's name before it.
func bare(id string) string {
	_, id, _ = strings.Cut(id, "://")
	return id
}
