package allocation

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// WhollyExclusive reports whether all that runs for as long as the pod has CPUs of its own:
// sidecars and regular containers. Other init containers are gone by then, and have a quota of
// their own.
func (p Pod) WhollyExclusive(pod *v1.Pod) bool {
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Init && p.Containers[c.Name].CPUs.IsEmpty() {
			return false
		}
	}
	return true
}

// Needs reports whether the pod asks for anything that has to be assigned: devices, or CPUs and
// memory of its own where these are given out at all.
func Needs(pod *v1.Pod, exclusiveCPUs, ownMemory bool) bool {
	exclusive, bytes := cpumanager.ExclusiveOf(pod), memory.RequestsOf(pod)
	for c := range podspec.Containers(pod) {
		if len(podspec.DeviceRequests(c)) > 0 || exclusiveCPUs && exclusive(c) > 0 ||
			ownMemory && len(bytes(c)) > 0 {
			return true
		}
	}
	return false
}
