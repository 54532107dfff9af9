package allocation

import (
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology/memory"
)

// containerKind tells when a container gives back what it holds.
type containerKind int

const (
	initContainer containerKind = iota // has finished before the next one starts
	sidecar                            // restartable init container: runs as long as the pod
	regular
)

// containers lists the containers in the order in which they start.
func containers(pod *v1.Pod) iter.Seq2[*v1.Container, containerKind] {
	return func(yield func(*v1.Container, containerKind) bool) {
		for i := range pod.Spec.InitContainers {
			c, kind := &pod.Spec.InitContainers[i], initContainer
			if cpumanager.IsSidecar(c) {
				kind = sidecar
			}
			if !yield(c, kind) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], regular) {
				return
			}
		}
	}
}

// WhollyExclusive reports whether all that runs for as long as the pod has CPUs of its own:
// sidecars and regular containers. Other init containers are gone by then, and have a quota of
// their own.
func (p Pod) WhollyExclusive(pod *v1.Pod) bool {
	for c, kind := range containers(pod) {
		if kind != initContainer && p.Containers[c.Name].CPUs.IsEmpty() {
			return false
		}
	}
	return true
}

// podDevices is the most devices of a resource that the pod holds at once: an init container
// runs beside the sidecars before it, the regular ones beside all sidecars.
func podDevices(pod *v1.Pod, resource string) int {
	most, steady := 0, 0
	for c, kind := range containers(pod) {
		n := deviceCount(c, resource)
		if kind == initContainer {
			most = max(most, steady+n)
			continue
		}
		steady += n
	}
	return max(most, steady)
}

// DeviceRequest is how many devices of a resource a container asks for.
type DeviceRequest struct {
	Resource string
	Count    int
}

// DeviceRequests lists the extended resources of a container's limits, by name.
func DeviceRequests(c *v1.Container) []DeviceRequest {
	var out []DeviceRequest
	for name, quantity := range c.Resources.Limits {
		if n := quantity.Value(); n > 0 && IsExtended(name) {
			out = append(out, DeviceRequest{Resource: string(name), Count: int(n)})
		}
	}
	slices.SortFunc(out, func(a, b DeviceRequest) int {
		return strings.Compare(a.Resource, b.Resource)
	})
	return out
}

// IsExtended reports whether the resource is an extended resource: one that a device plugin could
// serve.
func IsExtended(name v1.ResourceName) bool { return deviceplugin.IsExtendedResource(string(name)) }

func deviceCount(c *v1.Container, resource string) int {
	quantity := c.Resources.Limits[v1.ResourceName(resource)]
	return int(quantity.Value())
}

// podResources lists the extended resources that any container of the pod asks for.
func podResources(pod *v1.Pod) []string {
	names := sets.New[string]()
	for c := range containers(pod) {
		for _, d := range DeviceRequests(c) {
			names.Insert(d.Resource)
		}
	}
	return sets.List(names)
}

// Needs reports whether the pod asks for anything that has to be assigned: devices, or CPUs and
// memory of its own where these are given out at all.
func Needs(pod *v1.Pod, exclusiveCPUs, ownMemory bool) bool {
	for c := range containers(pod) {
		if len(DeviceRequests(c)) > 0 || exclusiveCPUs && cpumanager.Exclusive(pod, c) > 0 ||
			ownMemory && len(memory.Requests(pod, c)) > 0 {
			return true
		}
	}
	return false
}
