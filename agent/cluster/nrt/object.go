package nrt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// The object's attributes that NodeResourceTopologyMatch reads.
const (
	policyAttribute = "topologyManagerPolicy"
	scopeAttribute  = "topologyManagerScope"
	nodesAttribute  = "topologyManagerMaxNUMANodes"
)

// usualNodes is the number of NUMA nodes that schedulers assume as the maximum by default.
const usualNodes = 8

// Facts holds everything that the object consists of.
type Facts struct {
	Machine *topology.Machine
	Policy  topology.Policy
	Scope   topology.Scope
	// CPUs are the CPUs that can be exclusive, assigned or not; none with CPU manager policy none.
	CPUs cpuset.CPUSet
	// Isolated are further CPUs, for containers that ask for isolated ones only.
	Isolated cpuset.CPUSet
	// Memory is nil with memory manager policy None.
	Memory    *memory.Static
	Inventory devicemanager.Inventory
	// Held counts what pods hold of all that, also by resource claims.
	Held allocation.Holdings
	// Pods include their statuses.
	Pods []*v1.Pod
	// Undecided are pods that are bound to the node and not yet included in the amounts, but may be
	// given something.
	Undecided []*v1.Pod
}

// Object returns the node's NodeResourceTopology. Resources without a NUMA node are not in it:
// schedulers find them in the Node. CPUs and memory always are, since schedulers would take them to
// be absent.
func Object(node *v1.Node, f Facts) *v1alpha2.NodeResourceTopology {
	zones := make(v1alpha2.ZoneList, 0, len(f.Machine.Nodes()))
	memories := f.memories()
	for _, id := range f.Machine.NodeSet().IDs() {
		resources := f.cpus(id)
		resources = append(resources, memories[id]...)
		resources = append(resources, f.devices(id)...)
		zones = append(zones, v1alpha2.Zone{
			Name: zone(id), Type: "Node", Costs: f.costs(id), Resources: resources,
		})
	}
	return &v1alpha2.NodeResourceTopology{
		TypeMeta: metav1.TypeMeta{
			APIVersion: v1alpha2.SchemeGroupVersion.String(), Kind: "NodeResourceTopology",
		},
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}}},
		Zones: zones, Attributes: f.attributes(),
	}
}

func zone(id topology.NodeID) string { return fmt.Sprintf("node-%d", id) }

func (f Facts) attributes() v1alpha2.AttributeList {
	return v1alpha2.AttributeList{
		{Name: policyAttribute, Value: string(f.Policy)},
		{Name: scopeAttribute, Value: string(f.Scope)},
		{Name: nodesAttribute, Value: strconv.Itoa(max(usualNodes, len(f.Machine.Nodes())))},
		{Name: podfingerprint.Attribute, Value: f.fingerprint()},
		{Name: podfingerprint.AttributeMethod, Value: podfingerprint.MethodAll},
	}
}

// fingerprint says which pods the amounts cover. A scheduler that knows the same running pods
// accepts the amounts, and forgets what it has reserved since. While the amounts do not cover a
// pod, that pod is in the fingerprint, so that the scheduler keeps its own data.
func (f Facts) fingerprint() string {
	out := podfingerprint.NewFingerprint(len(f.Pods) + len(f.Undecided))
	for _, pod := range f.Pods {
		if pod.Status.Phase == v1.PodRunning { // as the scheduler counts
			_ = out.Add(pod.Namespace, pod.Name) // never fails
		}
	}
	for _, pod := range f.Undecided {
		_ = out.Add(pod.Namespace, pod.Name)
	}
	return out.Sign()
}

// costs returns the distances to all nodes, including itself.
func (f Facts) costs(from topology.NodeID) (out v1alpha2.CostList) {
	for _, to := range f.Machine.NodeSet().IDs() {
		out = append(out, v1alpha2.CostInfo{
			Name: zone(to), Value: int64(f.Machine.Distance(from, to)),
		})
	}
	return out
}

// cpus counts the node's CPUs: all, those that can be exclusive, and of these the free ones.
// Isolated CPUs are a separate resource.
func (f Facts) cpus(id topology.NodeID) v1alpha2.ResourceInfoList {
	own := f.Machine.CPUsOfNode(id)
	can, apart := own.Intersection(f.CPUs), own.Intersection(f.Isolated)
	if f.CPUs.IsEmpty() { // no container has exclusive CPUs
		can = own
	}
	out := v1alpha2.ResourceInfoList{amounts(string(v1.ResourceCPU), resource.DecimalSI,
		[3]int{own.Size(), can.Size(), can.Difference(f.Held.CPUs()).Size()})}
	if !apart.IsEmpty() {
		out = append(out, amounts(allocation.ResourceIsolated, resource.DecimalSI,
			[3]int{apart.Size(), apart.Size(), apart.Difference(f.Held.CPUs()).Size()}))
	}
	return out
}

// memories returns memory and huge pages by node; without the memory manager all of it is free.
func (f Facts) memories() map[topology.NodeID]v1alpha2.ResourceInfoList {
	out := map[topology.NodeID]v1alpha2.ResourceInfoList{}
	static, held := f.Memory, f.Held.Memory()
	if static == nil {
		static, held = memory.Unreserved(f.Machine), nil
	}
	for _, u := range static.Usage(held) {
		for _, name := range slices.Sorted(maps.Keys(u.Total)) {
			out[u.Node] = append(out[u.Node], amounts(string(name), resource.BinarySI,
				[3]uint64{u.Total[name], u.Allocatable[name], u.Free[name]}))
		}
	}
	return out
}

// devices counts the node's devices of each resource: all, those that are healthy and not cordoned,
// and of these the free ones: neither a pod nor a resource claim has them. A device with several nodes
// counts on each of them.
func (f Facts) devices(id topology.NodeID) (out v1alpha2.ResourceInfoList) {
	for _, name := range slices.Sorted(maps.Keys(f.Inventory.Resources)) {
		r := f.Inventory.Resources[name]
		claimed := f.Held.ByClaims(r)
		var all, offered, free int
		for _, d := range r.Devices {
			if !d.Nodes.Has(id) {
				continue
			}
			all++
			if !d.Offered() || !r.Connected {
				continue
			}
			offered++
			if _, byClaim := claimed[d.ID]; !byClaim && !f.Held.Devices()[name].Has(d.ID) {
				free++
			}
		}
		if all > 0 {
			out = append(out, amounts(name, resource.DecimalSI, [3]int{all, offered, free}))
		}
	}
	return out
}

// amounts returns a resource with its capacity, allocatable and available amounts.
func amounts[N int | uint64](name string, as resource.Format, n [3]N) v1alpha2.ResourceInfo {
	quantity := func(n N) resource.Quantity { return *resource.NewQuantity(int64(n), as) }
	return v1alpha2.ResourceInfo{Name: name,
		Capacity: quantity(n[0]), Allocatable: quantity(n[1]), Available: quantity(n[2])}
}
