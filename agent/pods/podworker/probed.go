package podworker

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/topology/podspec"
)

// failedProbe returns the probe for which a container has to be stopped; nil: there is none.
func failedProbe(c *v1.Container, found status.Probed) (kind string, probe *v1.Probe) {
	switch {
	case found.Liveness == status.Fails:
		return "liveness", c.LivenessProbe
	case found.Startup == status.Fails:
		return "startup", c.StartupProbe
	default:
		return "", nil
	}
}

// probeFailed says, in the kubelet's words, why a container is stopped, and whether it is started
// again: unless its own restart policy, or the pod's, is Never. Its exit, and rules about exits, do
// not count.
func probeFailed(pod *v1.Pod, c *v1.Container, kind string, init bool) (string, Again) {
	return restarts(pod, c, "failed "+kind+" probe", init)
}

// restarts is probeFailed for any reason.
func restarts(pod *v1.Pod, c *v1.Container, why string, init bool) (string, Again) {
	if init {
		return fmt.Sprintf("Init container %s %s", c.Name, why), AgainLater
	}
	message := fmt.Sprintf("Container %s %s", c.Name, why)
	if podspec.NeverRestarts(pod, c) {
		return message, NotAgain
	}
	return message + ", will be restarted", AgainLater
}
