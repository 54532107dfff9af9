package cpumanager

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Exclusive returns the number of exclusive CPUs of the container, 0 if it runs on shared ones. It
// expects a defaulted pod, the rules that hold for it and any of its containers, including init
// containers and sidecars.
func Exclusive(pod *v1.Pod, c *v1.Container, rules topology.Rules) int {
	return ExclusiveOf(pod, rules)(c)
}

// ExclusiveOf is Exclusive for all containers of the pod, whose class is computed once.
func ExclusiveOf(pod *v1.Pod, rules topology.Rules) func(*v1.Container) int {
	own := podspec.OwnOf(pod, rules)
	if own == podspec.OwnNothing || own == podspec.OwnPool && Pool(pod, rules) == 0 {
		return func(*v1.Container) int { return 0 }
	}
	return func(c *v1.Container) int { return alone(pod, c) }
}

// alone returns how many CPUs of its own a container of a Guaranteed pod gets.
func alone(pod *v1.Pod, c *v1.Container) int {
	if !podspec.QualifiesAlone(pod, c) {
		return 0
	}
	return whole(c.Resources.Requests)
}

// whole returns the requested CPUs, 0 if these are no whole number.
func whole(requests v1.ResourceList) int {
	cpu := requests.Cpu()
	if cpu.Value()*1000 != cpu.MilliValue() {
		return 0
	}
	return int(cpu.Value())
}

// Pool returns the number of CPUs that the pod gets as a whole (KEP-5526), 0 if its containers get theirs one
// by one.
func Pool(pod *v1.Pod, rules topology.Rules) int {
	if podspec.OwnOf(pod, rules) != podspec.OwnPool {
		return 0
	}
	return whole(pod.Spec.Resources.Requests)
}

// SharesWithinPod reports whether a container that has CPUs shares them with other containers of its pod.
func SharesWithinPod(pod *v1.Pod, c *v1.Container) bool { return alone(pod, c) == 0 }

// Unpadded returns how many exclusive CPUs a container that has some asked for before they were padded to
// whole cores; 0: its CPUs are not padded.
func Unpadded(pod *v1.Pod, container string) int {
	c, _ := podspec.Find(pod, container)
	if c == nil || !podspec.CPURules(pod).WholeCores {
		return 0
	}
	return Exclusive(pod, c, topology.Rules{PodLevel: true})
}

// PodExclusive returns the most exclusive CPUs that the pod needs at any time. Init containers pass
// their CPUs on, sidecars do not (KEP-753).
func PodExclusive(pod *v1.Pod, rules topology.Rules) int {
	if n := Pool(pod, rules); n > 0 {
		return n
	}
	return podspec.Peak(pod, ExclusiveOf(pod, rules))
}

// Shares reports whether any container of the pod, init containers included, runs on the node's shared CPUs.
func Shares(pod *v1.Pod, rules topology.Rules) bool {
	if Pool(pod, rules) > 0 {
		return false
	}
	exclusive := ExclusiveOf(pod, rules)
	for c := range podspec.Containers(pod) {
		if exclusive(c) == 0 {
			return true
		}
	}
	return false
}
