package cpumanager

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Exclusive returns the number of exclusive CPUs of the container, 0 if it runs on shared ones. It
// expects a defaulted pod and any of its containers, including init containers and sidecars.
//
// Containers of pods with pod-level resources (KEP-2837) always share.
func Exclusive(pod *v1.Pod, c *v1.Container) int { return ExclusiveOf(pod)(c) }

// ExclusiveOf is Exclusive for all containers of the pod, whose class is computed once.
func ExclusiveOf(pod *v1.Pod) func(*v1.Container) int {
	if !podspec.MayOwn(pod) {
		return func(*v1.Container) int { return 0 }
	}
	return func(c *v1.Container) int {
		cpu := c.Resources.Requests.Cpu()
		if cpu.Value()*1000 != cpu.MilliValue() {
			return 0
		}
		return int(cpu.Value())
	}
}

// Unpadded returns how many exclusive CPUs a container asked for before they were padded to whole cores;
// 0: its CPUs are not padded, or it has none.
func Unpadded(pod *v1.Pod, container string) int {
	c, _ := podspec.Find(pod, container)
	if c == nil || !podspec.CPURules(pod).WholeCores {
		return 0
	}
	return Exclusive(pod, c)
}

// PodExclusive returns the most exclusive CPUs that the pod needs at any time. Init containers pass
// their CPUs on, sidecars do not (KEP-753).
func PodExclusive(pod *v1.Pod) int { return podspec.Peak(pod, ExclusiveOf(pod)) }

// Shares reports whether any container of the pod, init containers included, runs on shared CPUs.
func Shares(pod *v1.Pod) bool {
	exclusive := ExclusiveOf(pod)
	for c := range podspec.Containers(pod) {
		if exclusive(c) == 0 {
			return true
		}
	}
	return false
}
