package slices

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/claims/places"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

// TestCPUDevices: what is published has what nobody has by requests, and is found where it is.
func TestCPUDevices(t *testing.T) {
	m, err := discover.Fixture("playground")
	if err != nil {
		t.Fatal(err)
	}
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
