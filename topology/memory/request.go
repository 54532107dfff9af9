package memory

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// Requests are the bytes of memory and huge pages that the container gets on nodes of its own
// choice: its limits, if the pod is Guaranteed; nil otherwise. It expects a defaulted pod and any
// of its containers.
//
// Containers of pods with pod-level resources (KEP-2837) get none, whatever they ask for.
func Requests(pod *v1.Pod, c *v1.Container) map[v1.ResourceName]uint64 {
	if resourcehelper.IsPodLevelResourcesSet(pod) || cgroups.QOSClass(pod) != v1.PodQOSGuaranteed {
		return nil
	}
	requests := map[v1.ResourceName]uint64{}
	for name, limit := range c.Resources.Limits {
		if isMemory(name) && limit.Sign() > 0 {
			requests[name] = uint64(limit.Value())
		}
	}
	return requests
}

// PodRequests are the bytes that the pod needs at any one time: those of its containers and
// sidecars, or more while an init container runs beside the sidecars that are started before it
// (KEP-753).
func PodRequests(pod *v1.Pod) map[v1.ResourceName]uint64 {
	sidecars, starting := map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		for name, size := range Requests(pod, c) {
			if sidecar {
				sidecars[name] += size
			} else {
				starting[name] = max(starting[name], sidecars[name]+size)
			}
		}
	}
	running := sidecars
	for i := range pod.Spec.Containers {
		for name, size := range Requests(pod, &pod.Spec.Containers[i]) {
			running[name] += size
		}
	}
	for name, size := range starting {
		running[name] = max(running[name], size)
	}
	if len(running) == 0 {
		return nil
	}
	return running
}

func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// Reserved is reservedMemory of the configuration in bytes.
func Reserved(list []kubeletconfig.MemoryReservation) Amounts {
	out := Amounts{}
	for _, r := range list {
		id := topology.NodeID(r.NumaNode)
		if out[id] == nil {
			out[id] = map[v1.ResourceName]uint64{}
		}
		for name, q := range r.Limits {
			out[id][name] += uint64(max(0, q.Value()))
		}
	}
	return out
}

// CheckReserved reports whether reservedMemory adds up to what is kept from pods on the whole node:
// kubeReserved, systemReserved and the hard eviction threshold together. Memory may differ by slack
// bytes, because a threshold that is a percentage follows the machine's total. The text is the
// kubelet's.
func CheckReserved(list []kubeletconfig.MemoryReservation, kept v1.ResourceList,
	slack int64) error {
	sums := map[v1.ResourceName]resource.Quantity{}
	for _, r := range list {
		for name, q := range r.Limits {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
		}
	}
	for name := range kept {
		if _, ok := sums[name]; !ok && isMemory(name) {
			sums[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	for _, name := range sortedKeys(sums) {
		sum, want := sums[name], kept[name]
		off := sum.DeepCopy()
		off.Sub(want)
		if name == v1.ResourceMemory && max(off.Value(), -off.Value()) <= slack {
			continue
		}
		if !off.IsZero() {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q "+
				"determined by Node Allocatable feature", sum.String(), name, want.String())
		}
	}
	return nil
}
