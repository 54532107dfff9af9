package watchv1

import (
	"cmp"
	"maps"
	"slices"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Mirror is a client's copy of the watched state. The zero value is ready; Apply every message.
type Mirror struct {
	// Instance and Generation are the position at which a new watch can continue.
	Instance   string
	Generation uint64
	// Complete is set if all of one generation and nothing of the next has been applied.
	Complete bool

	pods    map[string]*Pod
	node    *Node
	devices map[string]map[string][]*podresourcesv1.ContainerDevices // by resource and id
}

// Apply applies the next message.
func (m *Mirror) Apply(r *WatchResponse) {
	if m.pods == nil || r.GetSnapshot() != nil {
		m.Instance, m.Generation = "", 0 // their state was dropped
		m.pods, m.node = map[string]*Pod{}, nil
		m.devices = map[string]map[string][]*podresourcesv1.ContainerDevices{}
	}
	switch e := r.GetEvent().(type) {
	case *WatchResponse_Pod:
		m.pods[e.Pod.GetUid()] = e.Pod
	case *WatchResponse_DeletedPod:
		delete(m.pods, e.DeletedPod.GetUid())
	case *WatchResponse_Node:
		m.node = e.Node
	case *WatchResponse_Devices:
		m.apply(e.Devices)
	}
	if m.Complete = !r.GetPartial(); m.Complete {
		m.Instance, m.Generation = r.GetInstance(), r.GetGeneration()
	}
}

func (m *Mirror) apply(d *Devices) {
	of := m.devices[d.GetResourceName()]
	if of == nil {
		of = map[string][]*podresourcesv1.ContainerDevices{}
		m.devices[d.GetResourceName()] = of
	}
	for _, id := range d.GetDeletedIds() {
		delete(of, id)
	}
	for _, entry := range d.GetPut() {
		for _, id := range entry.GetDeviceIds() {
			delete(of, id)
		}
	}
	for _, entry := range d.GetPut() {
		for _, id := range entry.GetDeviceIds() {
			of[id] = append(of[id], entry)
		}
	}
}

// Pods returns the pods in List's order: by namespace and name.
func (m *Mirror) Pods() []*Pod {
	return slices.SortedFunc(maps.Values(m.pods), func(a, b *Pod) int {
		x, y := a.GetResources(), b.GetResources()
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()),
			cmp.Compare(x.GetName(), y.GetName()), cmp.Compare(a.GetUid(), b.GetUid()))
	})
}

// Allocatable returns what GetAllocatableResources returns, with devices by resource and id.
func (m *Mirror) Allocatable() *podresourcesv1.AllocatableResourcesResponse {
	out := &podresourcesv1.AllocatableResourcesResponse{
		CpuIds: m.node.GetCpuIds(), Memory: m.node.GetMemory(),
	}
	for _, resource := range slices.Sorted(maps.Keys(m.devices)) {
		of := m.devices[resource]
		for _, id := range slices.Sorted(maps.Keys(of)) {
			out.Devices = append(out.Devices, of[id]...)
		}
	}
	return out
}
