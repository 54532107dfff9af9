package podresources

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// Snapshot holds the data of answers.
type Snapshot struct {
	// Pods are the active pods.
	Pods      []*v1.Pod
	Assigned  allocation.State
	Inventory devicemanager.Inventory
	// Machine says where devices are; nil: not known.
	Machine *topology.Machine
	// Claims returns a pod's prepared resource claims; nil: there are none.
	Claims func(pod types.UID) []claims.Prepared
	// CPUs are the CPUs that can be exclusive, assigned or not.
	CPUs cpuset.CPUSet
	// Memory is the memory policy; nil: memory is not placed on nodes.
	Memory *memory.Static
}

// find returns the active pod of that name, or nil.
func (s Snapshot) find(namespace, name string) *podresourcesv1.PodResources {
	for _, pod := range s.Pods {
		if pod.Namespace == namespace && pod.Name == name {
			return s.pod(pod)
		}
	}
	return nil
}

// pod describes the pod's sidecars and regular containers; init containers are gone by then. What containers
// share within the pod is the pod's.
func (s Snapshot) pod(pod *v1.Pod) *podresourcesv1.PodResources {
	out := &podresourcesv1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	held := s.Assigned.Pods[pod.UID]
	pool := s.container("", held.Pool())
	out.CpuIds, out.Memory = pool.CpuIds, pool.Memory
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Init {
			one := s.container(c.Name, held.Containers[c.Name])
			if held.SharesCPUs(pod, c) {
				one.CpuIds = nil
			}
			if held.SharesMemory(pod, c) {
				one.Memory = nil
			}
			one.DynamicResources = s.dynamic(pod, c.Name)
			out.Containers = append(out.Containers, one)
		}
	}
	return out
}

func (s Snapshot) container(name string,
	held allocation.Container) *podresourcesv1.ContainerResources {
	out := &podresourcesv1.ContainerResources{Name: name}
	if !s.CPUs.IsEmpty() { // else they come from an earlier policy
		out.CpuIds = ids(held.CPUs())
	}
	if s.Memory != nil {
		out.Memory = memoryOf(held.Memory())
	}
	for _, d := range held.Devices() {
		for i, id := range d.IDs {
			device := &devicemanager.Device{ID: id, Nodes: d.NodesOf(i)}
			out.Devices = append(out.Devices, entries(d.Resource, device)...)
		}
	}
	return out
}

// dynamic lists the claims that the container uses, each with all of its devices, as the kubelet does.
func (s Snapshot) dynamic(pod *v1.Pod, container string) (out []*podresourcesv1.DynamicResource) {
	parts, err := claim.Parts(pod, container)
	if s.Claims == nil || err != nil || len(parts) == 0 {
		return nil
	}
	all := s.Claims(pod.UID)
	for _, part := range parts {
		at := slices.IndexFunc(all, func(p claims.Prepared) bool { return p.Name == part.Name })
		if at < 0 {
			continue
		}
		one := &podresourcesv1.DynamicResource{ClaimName: part.Name, ClaimNamespace: pod.Namespace}
		for _, d := range all[at].Devices {
			r := &podresourcesv1.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name}
			for _, id := range d.CDI {
				r.CdiDevices = append(r.CdiDevices, &podresourcesv1.CDIDevice{Name: id})
			}
			if d.ShareID != "" {
				r.ShareId = &d.ShareID
			}
			one.ClaimResources = append(one.ClaimResources, r)
		}
		out = append(out, one)
	}
	return out
}

// allocatable returns the healthy, uncordoned devices of connected plugins, assigned or not, the
// CPUs and the memory.
func (s Snapshot) allocatable() *podresourcesv1.AllocatableResourcesResponse {
	out := &podresourcesv1.AllocatableResourcesResponse{CpuIds: ids(s.CPUs)}
	if s.Memory != nil {
		out.Memory = memoryOf(s.Memory.AllocatableBlocks())
	}
	for _, name := range slices.Sorted(maps.Keys(s.Inventory.Resources)) {
		r := s.Inventory.Resources[name]
		for _, device := range r.Devices {
			if r.Connected && allocatable(device) {
				out.Devices = append(out.Devices, entries(name, device)...)
			}
		}
	}
	return out
}

// allocatable reports whether an unassigned device is listed. As with the kubelet, a device whose
// topology names no node is not.
func allocatable(d *devicemanager.Device) bool { return d != nil && d.Offered() && !d.NoNodes }

// entries returns a device in the API's form: once, or once for each of its nodes.
func entries(resource string, d *devicemanager.Device) []*podresourcesv1.ContainerDevices {
	entry := func() *podresourcesv1.ContainerDevices {
		return &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{d.ID}}
	}
	if d.Nodes.IsEmpty() {
		return []*podresourcesv1.ContainerDevices{entry()}
	}
	var out []*podresourcesv1.ContainerDevices
	for _, n := range d.Nodes.IDs() {
		e := entry()
		e.Topology = topologyOf(topology.NewNodeSet(n))
		out = append(out, e)
	}
	return out
}

func memoryOf(blocks []memory.Block) (out []*podresourcesv1.ContainerMemory) {
	for _, b := range blocks {
		out = append(out, &podresourcesv1.ContainerMemory{
			MemoryType: string(b.Resource), Size: b.Size, Topology: topologyOf(b.Nodes),
		})
	}
	return out
}

func topologyOf(nodes topology.NodeSet) *podresourcesv1.TopologyInfo {
	out := &podresourcesv1.TopologyInfo{}
	for _, n := range nodes.IDs() {
		out.Nodes = append(out.Nodes, &podresourcesv1.NUMANode{ID: int64(n)})
	}
	return out
}

func ids(cpus cpuset.CPUSet) []int64 {
	var out []int64
	for _, id := range cpus.List() {
		out = append(out, int64(id))
	}
	return out
}
