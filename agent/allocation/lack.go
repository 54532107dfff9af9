package allocation

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Lacks names what containers of the pod request for as long as it runs and p does not have:
// devices, and CPUs and memory of their own where these are given out at all. Init containers that
// give back what they had are left out: they may have finished.
func (p Pod) Lacks(pod *v1.Pod, exclusiveCPUs, ownMemory bool) (out []string) {
	exclusive, bytes := cpumanager.ExclusiveOf(pod), memory.RequestsOf(pod)
	for c, kind := range podspec.Containers(pod) {
		if kind == podspec.Init {
			continue
		}
		held := p.Containers[c.Name]
		if n := exclusive(c); exclusiveCPUs && held.CPUs.Size() < n {
			out = append(out, fmt.Sprintf("%d exclusive CPUs of container %s", n, c.Name))
		}
		if ownMemory && len(held.Memory) < len(bytes(c)) {
			out = append(out, fmt.Sprintf("memory of container %s on nodes of its own", c.Name))
		}
		for _, d := range podspec.DeviceRequests(c) {
			if has, _ := held.device(d.Resource); len(has.IDs) < d.Count {
				out = append(out, fmt.Sprintf("%d %s of container %s", d.Count, d.Resource, c.Name))
			}
		}
	}
	return out
}

// Incomplete reports whether a container of the pod could not be created with what p has: a
// plugin's answer is missing, or the container wants devices and has nothing at all. Init
// containers that are missing are left out: they may have finished.
func (p Pod) Incomplete(pod *v1.Pod) bool {
	for c, kind := range podspec.Containers(pod) {
		held := p.Containers[c.Name]
		if held.isEmpty() && kind != podspec.Init && len(podspec.DeviceRequests(c)) > 0 {
			return true
		}
		if slices.ContainsFunc(held.Devices, func(d DeviceSet) bool { return d.Answer == nil }) {
			return true
		}
	}
	return false
}
