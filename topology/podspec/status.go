package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ByContainer returns pointers to the statuses in s, of all kinds of containers, by name.
func ByContainer(s *v1.PodStatus) map[string]*v1.ContainerStatus {
	out := map[string]*v1.ContainerStatus{}
	for _, list := range [][]v1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			out[list[i].Name] = &list[i]
		}
	}
	return out
}

// RuntimeID returns the runtime's id of a container, from that of its status.
func RuntimeID(containerID string) string {
	_, id, _ := strings.Cut(containerID, "://")
	return id
}

// Ended reports whether a phase is final.
func Ended(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}
