// Package assigned says which CPUs, memory and devices the containers of the node's pods have, and
// whether these are aligned. It is pure.
package assigned

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/flatjson"
	"github.com/numalet/numalet/topology/podspec"
)

// Row describes one container. Its JSON is flat.
type Row struct {
	Key
	State State
	Place
}

// Key identifies a container.
type Key struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// State is the state of a container and its pod.
type State struct {
	// Phase is the pod's phase.
	Phase v1.PodPhase `json:"phase"`
	// Reason says why the container or its pod waits, or why the pod was rejected; "" otherwise.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Place says what a container has and where.
type Place struct {
	// CPUs are the CPUs that the container may run on, in the kernel's list syntax; "" without a
	// place.
	CPUs string `json:"cpus"`
	// Exclusive is set if the CPUs are exclusive to the container, not if it shares them within its pod.
	Exclusive bool `json:"exclusive"`
	// Isolated is set if they are among the CPUs that the node keeps for pods that ask for them.
	Isolated bool `json:"isolated,omitempty"`
	// MemoryNodes are the nodes that its memory may come from.
	MemoryNodes string `json:"memoryNodes"`
	// Devices are ids by the resource of their plugin, and pool/device by the name of their driver if they are those
	// of resource claims.
	Devices map[string][]string `json:"devices"`
	// DeviceHealth holds the health of devices that are not healthy, by resource and id.
	DeviceHealth map[string]map[string]v1.ResourceHealthStatus `json:"deviceHealth,omitempty"`
	// NUMANodes are the nodes of its exclusive CPUs, memory and devices; "" if none of these has a
	// node.
	NUMANodes string `json:"numaNodes"`
	// Aligned is set if all of these are on one NUMA node; null if none has a node.
	Aligned *bool `json:"aligned"`
}

// MarshalJSON writes the row as one object.
func (r Row) MarshalJSON() ([]byte, error) { return flatjson.Marshal(r.Key, r.State, r.Place) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Row) UnmarshalJSON(text []byte) error {
	return flatjson.Unmarshal(text, &r.Key, &r.State, &r.Place)
}

// Input holds the data for the rows.
type Input struct {
	Hardware machine.Hardware
	// Pods include their statuses.
	Pods []*v1.Pod
	// Assigned is the committed state.
	Assigned allocation.State
	// Shared are the CPUs of containers without exclusive CPUs.
	Shared cpuset.CPUSet
	// Health returns a device's health; nil: health is not reported.
	Health func(resource, id string) v1.ResourceHealthStatus
	// Ill reports whether a driver says that a device of a claim is unhealthy; nil: none is.
	Ill func(claim.Device) bool
}

// Rows lists all containers by namespace, pod and position in the spec.
func Rows(in Input) []Row {
	rows := []Row{}
	for _, pod := range slices.SortedFunc(slices.Values(in.Pods), podspec.Compare) {
		statuses := podspec.ByContainer(&pod.Status)
		held := in.Assigned.Pods[pod.UID]
		for c := range podspec.Containers(pod) {
			state := ptr.Deref(statuses[c.Name], v1.ContainerStatus{}).State
			row := Row{
				Key:   Key{Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name},
				State: stateOf(pod, state),
				Place: in.place(held.Containers[c.Name], state.Running != nil),
			}
			row.Exclusive = row.Exclusive && !held.SharesCPUs(pod, c)
			rows = append(rows, row)
		}
	}
	return rows
}

func stateOf(pod *v1.Pod, container v1.ContainerState) State {
	s := State{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message,
	}
	if w := container.Waiting; w != nil && s.Reason == "" {
		s.Reason, s.Message = w.Reason, w.Message
	}
	if t := container.Terminated; t != nil && s.Reason == "" {
		s.Reason, s.Message = t.Reason, t.Message
	}
	return s
}

// place describes a container with these holdings that runs or does not.
func (in Input) place(held allocation.Container, running bool) Place {
	if in.Hardware.CPUs == nil {
		held = held.With(allocation.CPUs(cpuset.New())) // from an earlier policy
	}
	p := Place{Devices: map[string][]string{}}
	nodes, memory := in.Hardware.Machine.NodesOf(held.CPUs()), in.Hardware.MemoryNodes(held.Memory())
	switch {
	case !held.CPUs().IsEmpty():
		p.CPUs, p.Exclusive = held.CPUs().String(), true
		p.Isolated = held.CPUs().IsSubsetOf(in.Hardware.CPUs.Isolated())
	case running:
		p.CPUs = in.Shared.String()
	}
	switch {
	case !memory.IsEmpty():
		p.MemoryNodes = memory.String()
		nodes = nodes.Union(memory)
	case p.CPUs != "":
		p.MemoryNodes = in.Hardware.Machine.MemoryNodes().String()
	}
	for _, d := range held.Devices() {
		p.Devices[d.Resource] = d.IDs
		for i, id := range d.IDs {
			nodes = nodes.Union(d.NodesOf(i))
			in.tellHealth(&p, d.Resource, id)
		}
	}
	for _, one := range held.Claims() {
		for _, d := range one.Devices {
			id := d.Pool + "/" + d.Name
			p.Devices[d.Driver] = append(p.Devices[d.Driver], id)
			nodes = nodes.Union(d.Place.Nodes)
			if in.Ill != nil && in.Ill(d) {
				p.mark(d.Driver, id, v1.ResourceHealthStatusUnhealthy)
			}
		}
	}
	p.NUMANodes = nodes.String()
	if nodes.Len() > 0 {
		p.Aligned = ptr.To(nodes.Len() == 1)
	}
	return p
}

// tellHealth records a device that is not healthy.
func (in Input) tellHealth(p *Place, resource, id string) {
	if in.Health == nil {
		return
	}
	health := in.Health(resource, id)
	if health == v1.ResourceHealthStatusHealthy {
		return
	}
	p.mark(resource, id, health)
}

func (p *Place) mark(resource, id string, health v1.ResourceHealthStatus) {
	if p.DeviceHealth == nil {
		p.DeviceHealth = map[string]map[string]v1.ResourceHealthStatus{}
	}
	if p.DeviceHealth[resource] == nil {
		p.DeviceHealth[resource] = map[string]v1.ResourceHealthStatus{}
	}
	p.DeviceHealth[resource][id] = health
}
