// Package placement says where the containers of the node's pods are: which CPUs, which memory,
// which devices, and whether they sit together. It is pure.
package placement

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Row is one container. It has more fields than other structs: as JSON it is flat.
type Row struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Phase is the pod's phase.
	Phase v1.PodPhase `json:"phase"`
	// Reason says why the container waits, or why its pod does or was rejected; "" else.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// CPUs is where the container may run, in the kernel's list syntax; "" while it has no place.
	CPUs string `json:"cpus"`
	// Exclusive: the CPUs are the container's own.
	Exclusive bool `json:"exclusive"`
	// Isolated: they are some of those that the node keeps for pods that ask for them.
	Isolated bool `json:"isolated,omitempty"`
	// MemoryNodes is where its memory may come from.
	MemoryNodes string              `json:"memoryNodes"`
	Devices     map[string][]string `json:"devices"`
	// DeviceHealth is that of the devices that are not healthy, by resource and id.
	DeviceHealth map[string]map[string]v1.ResourceHealthStatus `json:"deviceHealth,omitempty"`
	// NUMANodes is where its own CPUs, memory and devices are; "" when it has none with a place.
	NUMANodes string `json:"numaNodes"`
	// Aligned: all of these are on one NUMA node; null when it has none with a place.
	Aligned *bool `json:"aligned"`
}

// Input is what the rows are computed from.
type Input struct {
	Hardware machine.Hardware
	// Pods carry their status.
	Pods []*v1.Pod
	// Assigned is the committed state.
	Assigned allocation.State
	// Shared is where containers without CPUs of their own run.
	Shared cpuset.CPUSet
	// Health is that of a device; nil: it is not told.
	Health func(resource, id string) v1.ResourceHealthStatus
}

// Rows lists all containers by namespace, pod and place in the spec.
func Rows(in Input) []Row {
	pods := slices.SortedFunc(slices.Values(in.Pods), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})
	rows := []Row{}
	for _, pod := range pods {
		statuses := map[string]v1.ContainerState{}
		for _, s := range pod.Status.InitContainerStatuses {
			statuses[s.Name] = s.State
		}
		for _, s := range pod.Status.ContainerStatuses {
			statuses[s.Name] = s.State
		}
		for c := range podspec.Containers(pod) {
			rows = append(rows, in.row(pod, c.Name, statuses[c.Name]))
		}
	}
	return rows
}

func (in Input) row(pod *v1.Pod, container string, state v1.ContainerState) Row {
	r := Row{
		Namespace: pod.Namespace, Pod: pod.Name, Container: container,
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message,
		Devices: map[string][]string{},
	}
	if w := state.Waiting; w != nil && r.Reason == "" {
		r.Reason, r.Message = w.Reason, w.Message
	}
	if t := state.Terminated; t != nil && r.Reason == "" {
		r.Reason, r.Message = t.Reason, t.Message
	}
	held := in.Assigned.Pods[pod.UID].Containers[container]
	nodes := in.place(&r, held, state.Running != nil)
	r.NUMANodes = nodes.String()
	if nodes.Len() > 0 {
		aligned := nodes.Len() == 1
		r.Aligned = &aligned
	}
	return r
}

// place fills in CPUs, memory and devices and returns the nodes of what is the container's own.
func (in Input) place(r *Row, held allocation.Container, running bool) topology.NodeSet {
	if in.Hardware.CPUs == nil {
		held.CPUs = cpuset.New() // of an earlier policy
	}
	nodes, memory := in.Hardware.Machine.NodesOf(held.CPUs), in.Hardware.MemoryNodes(held.Memory)
	switch {
	case !held.CPUs.IsEmpty():
		r.CPUs, r.Exclusive = held.CPUs.String(), true
		r.Isolated = held.CPUs.IsSubsetOf(in.Hardware.CPUs.Isolated())
	case running:
		r.CPUs = in.Shared.String()
	}
	switch {
	case !memory.IsEmpty():
		r.MemoryNodes = memory.String()
		nodes = nodes.Union(memory)
	case r.CPUs != "":
		r.MemoryNodes = in.Hardware.Machine.MemoryNodes().String()
	}
	for _, d := range held.Devices {
		r.Devices[d.Resource] = d.IDs
		for i, id := range d.IDs {
			nodes = nodes.Union(d.NodesOf(i))
			in.tellHealth(r, d.Resource, id)
		}
	}
	return nodes
}

// tellHealth notes a device that is not healthy.
func (in Input) tellHealth(r *Row, resource, id string) {
	if in.Health == nil {
		return
	}
	health := in.Health(resource, id)
	if health == v1.ResourceHealthStatusHealthy {
		return
	}
	if r.DeviceHealth == nil {
		r.DeviceHealth = map[string]map[string]v1.ResourceHealthStatus{}
	}
	if r.DeviceHealth[resource] == nil {
		r.DeviceHealth[resource] = map[string]v1.ResourceHealthStatus{}
	}
	r.DeviceHealth[resource][id] = health
}
