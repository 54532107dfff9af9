package logs

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// which returns the id of the container whose log is meant, by the pod's status: the container that
// runs or ran last or, if previous, the one before. The error says why there is no log.
func which(pod *v1.Pod, name string, previous bool) (string, error) {
	c := podspec.ByContainer(&pod.Status)[name]
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
		return podspec.RuntimeID(last.Terminated.ContainerID), nil
	case state.Running != nil:
		return podspec.RuntimeID(c.ContainerID), nil
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		return podspec.RuntimeID(state.Terminated.ContainerID), nil
	case last.Terminated != nil && last.Terminated.ContainerID != "":
		return podspec.RuntimeID(last.Terminated.ContainerID), nil
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

// waits describes the reason of a waiting container.
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
