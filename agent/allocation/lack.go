package allocation

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/memory"
)

// Lacks names what containers of the pod request for as long as it runs and p does not have:
// devices, and CPUs and memory of their own where these are given out at all. Init containers that
// give back what they had are left out: they may have finished.
func (p Pod) Lacks(pod *v1.Pod, exclusiveCPUs, ownMemory bool) (out []string) {
	for c, kind := range containers(pod) {
		if kind == initContainer {
			continue
		}
		held := p.Containers[c.Name]
		if n := cpumanager.Exclusive(pod, c); exclusiveCPUs && held.CPUs.Size() < n {
			out = append(out, fmt.Sprintf("%d exclusive CPUs of container %s", n, c.Name))
		}
		if ownMemory && len(held.Memory) < len(memory.Requests(pod, c)) {
			out = append(out, fmt.Sprintf("memory of container %s on nodes of its own", c.Name))
		}
		for _, d := range DeviceRequests(c) {
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
	for c, kind := range containers(pod) {
		held := p.Containers[c.Name]
		if held.isEmpty() && kind != initContainer && len(DeviceRequests(c)) > 0 {
			return true
		}
		if slices.ContainsFunc(held.Devices, func(d DeviceSet) bool { return d.Answer == nil }) {
			return true
		}
	}
	return false
}
