package cpumanager

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/numalet/numalet/cgroups"
)

// Exclusive is the number of CPUs that the container gets for itself, 0 if it runs on the shared
// ones. It expects a defaulted pod and any of its containers, also an init container or sidecar.
//
// Containers of pods with pod-level resources (KEP-2837) share, whatever they ask for.
func Exclusive(pod *v1.Pod, c *v1.Container) int {
	if resourcehelper.IsPodLevelResourcesSet(pod) || cgroups.QOSClass(pod) != v1.PodQOSGuaranteed {
		return 0
	}
	cpu := c.Resources.Requests.Cpu()
	if cpu.Value()*1000 != cpu.MilliValue() {
		return 0
	}
	return int(cpu.Value())
}

// PodExclusive is the number of exclusive CPUs that the pod needs at any one time: those of its
// containers and sidecars, or more while an init container runs beside the sidecars that are
// started before it (KEP-753). Init containers pass their CPUs on, sidecars do not.
func PodExclusive(pod *v1.Pod) int {
	sidecars, starting := 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		n := Exclusive(pod, c)
		if IsSidecar(c) {
			sidecars += n
		} else {
			starting = max(starting, sidecars+n)
		}
	}
	running := sidecars
	for i := range pod.Spec.Containers {
		running += Exclusive(pod, &pod.Spec.Containers[i])
	}
	return max(starting, running)
}

// Shares reports whether a container of the pod runs on the shared CPUs, be it an init container.
func Shares(pod *v1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		if Exclusive(pod, &pod.Spec.InitContainers[i]) == 0 {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if Exclusive(pod, &pod.Spec.Containers[i]) == 0 {
			return true
		}
	}
	return false
}

// IsSidecar reports whether an init container keeps running beside the others.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
