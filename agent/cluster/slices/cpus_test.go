package slices

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestCPUDevices: what is published has what nobody has by requests, and is found where it is.
func TestCPUDevices(t *testing.T) {
	m := topologytest.Fixture(t, "playground")
	all := m.Online().Difference(cpuset.New(0))
	taken := m.CPUsOfNode(1)
	devices := CPUs{Machine: m, All: all, Free: all.Difference(taken), Step: 2, Mapped: true}.Devices()
	if len(devices) != m.NodeSet().Len() {
		t.Fatalf("%d devices", len(devices))
	}
	for i, want := range []int64{int64(m.CPUsOfNode(0).Size() - 1), 0} {
		d := devices[i]
		capacity := d.Capacity[cpuCapacity]
		if got := capacity.Value.Value(); got != want || (capacity.RequestPolicy != nil) != (want > 0) {
			t.Errorf("%s has %d CPUs, want %d; policy %v", d.Name, got, want, capacity.RequestPolicy)
		}
		at, wrong := places.Default().Find(m, places.Device{Driver: "dra.cpu", Pool: "n", Name: d.Name,
			Attributes: d.Attributes, Capacity: d.Capacity})
		if at.Nodes != topology.NewNodeSet(topology.NodeID(i)) || at.Has.CPUs != want || len(wrong) > 0 {
			t.Errorf("%s is found at %+v: %v", d.Name, at, wrong)
		}
		mapped := d.NodeAllocatableResources[v1.ResourceCPU].Mapping
		if mapped == nil || *mapped.CapacityKey != cpuCapacity {
			t.Errorf("%s maps %+v", d.Name, mapped)
		}
	}
}

// oneClass is a cluster with the class of the driver.
type oneClass struct{}

func (oneClass) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

func (oneClass) Get(string) (*resourcev1.DeviceClass, error) {
	return &resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
		{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "dra.cpu"`}}}}}, nil
}

// TestSchedulerTakesCPUs: the scheduler's own allocator gives claims what they ask for of the devices,
// in whole steps, and what it writes into the claim is what the node reads.
func TestSchedulerTakesCPUs(t *testing.T) {
	m := topologytest.Fixture(t, "playground")
	all := m.CPUsOfNode(0).Union(m.CPUsOfNode(1))
	devices := CPUs{Machine: m, All: all, Free: all, Step: 2}.Devices()
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: resourcev1.ResourceSliceSpec{Driver: claim.CPUDriver, NodeName: ptr.To("node"),
			Pool: resourcev1.ResourcePool{Name: "node", Generation: 1, ResourceSliceCount: 1}, Devices: devices}}
	most := int64(m.CPUsOfNode(1).Size())
	for _, c := range []struct{ asks, used, want int64 }{
		{4, 0, 4}, {3, 0, 4}, {0, 0, 2}, {most, 0, most}, {4, most - 4, 4}, {4, most - 2, 0},
	} {
		used := structured.NewConsumedCapacityCollection()
		used.Insert(structured.NewDeviceConsumedCapacity(structured.MakeDeviceID(claim.CPUDriver, "node",
			claim.CPUDevice(1)), map[resourcev1.QualifiedName]resource.Quantity{
			cpuCapacity: quantity(c.used)}))
		allocator, err := structured.NewAllocator(t.Context(), structured.Features{ConsumableCapacity: true},
			structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
				AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: used},
			oneClass{}, []*resourcev1.ResourceSlice{slice}, cel.NewCache(10, cel.Features{}))
		if err != nil {
			t.Fatal(err)
		}
		asks := &resourcev1.ExactDeviceRequest{DeviceClassName: "dra.cpu", Count: 1,
			AllocationMode: resourcev1.DeviceAllocationModeExactCount,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: `device.attributes["resource.kubernetes.io"].numaNode == 1`}}}}
		if c.asks > 0 {
			asks.Capacity = &resourcev1.CapacityRequirements{
				Requests: map[resourcev1.QualifiedName]resource.Quantity{cpuCapacity: quantity(c.asks)}}
		}
		asked := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}}
		asked.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "cpus", Exactly: asks}}
		got, err := allocator.Allocate(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
			[]*resourcev1.ResourceClaim{asked})
		if err != nil {
			t.Fatal(err)
		}
		cpus := 0
		if len(got) > 0 {
			asked.Status.Allocation = &got[0]
			d := claim.UseOf(claim.Ref{}, asked).Devices[0]
			if cpus = d.CPUs(); claim.NodeOfCPUDevice(d.Name) != topology.NewNodeSet(1) {
				t.Errorf("%+v: device %s", c, d.Name)
			}
		}
		if cpus != int(c.want) {
			t.Errorf("%+v: %d CPUs", c, cpus)
		}
	}
}
