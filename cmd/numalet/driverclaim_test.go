package main

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const checkedDriver = "gpu.example.com"

func sliceOf(node string, generation int64, devices ...resourcev1.Device) resourcev1.ResourceSlice {
	return resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice-" + node + string(rune('a'+generation))},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: checkedDriver, NodeName: &node, Devices: devices,
			Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: 1},
		},
	}
}

func deviceNamed(name string) resourcev1.Device { return resourcev1.Device{Name: name} }

func allocatedTo(pool, device string) resourcev1.ResourceClaim {
	return resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "team"},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{
					{Driver: checkedDriver, Pool: pool, Device: device},
					{Driver: "nic.example.com", Pool: pool, Device: "gpu-1"},
				},
			},
		}},
	}
}

// A claim gets devices that are listed now, on the node, untainted and not another claim's.
func TestFreeDevices(t *testing.T) {
	part := resourcev1.Device{Name: "part", ConsumesCounters: []resourcev1.DeviceCounterConsumption{{}}}
	tainted := resourcev1.Device{Name: "gpu-9", Taints: []resourcev1.DeviceTaint{{Key: "sick"}}}
	all := []resourcev1.ResourceSlice{
		sliceOf("n1", 1, deviceNamed("old")),
		sliceOf("n1", 2, tainted, deviceNamed("gpu-0"), deviceNamed("gpu-1"), deviceNamed("gpu-2")),
		sliceOf("n2", 1, deviceNamed("gpu-7")),
		sliceOf("n3", 1, part, part),
	}
	for _, tc := range []struct {
		name   string
		want   driverClaim
		claims []resourcev1.ResourceClaim
		got    string // pool and devices, or a part of the error
	}{
		{"the first", driverClaim{devices: 1}, nil, "n1 gpu-0"},
		{"not that of a claim", driverClaim{devices: 2},
			[]resourcev1.ResourceClaim{allocatedTo("n1", "gpu-0")}, "n1 gpu-1 gpu-2"},
		{"of the node", driverClaim{devices: 1, node: "n2"}, nil, "n2 gpu-7"},
		{"a part", driverClaim{devices: 1, node: "n3"}, nil, "n3 part"},
		{"no part beside another", driverClaim{devices: 1, node: "n3"},
			[]resourcev1.ResourceClaim{allocatedTo("n3", "whole")}, "not 1 free in one pool"},
		{"too many", driverClaim{devices: 4}, nil, "of the 7 devices of driver gpu.example.com there are not 4"},
		{"no node", driverClaim{devices: 1, node: "n4"}, nil, "gpu.example.com on node n4: does the driver run"},
		{"none", driverClaim{}, nil, "--devices 0"},
	} {
		tc.want.driver = checkedDriver
		results, err := tc.want.free(all, tc.claims)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = results[0].Pool
			for _, r := range results {
				got += " " + r.Device
			}
		}
		if got != tc.got && (err == nil || !strings.Contains(got, tc.got)) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.got)
		}
	}
}

// The claim is created and allocated; one that cannot be allocated is not left behind.
func TestMakeClaim(t *testing.T) {
	slice := sliceOf("n1", 1, deviceNamed("gpu-0"))
	client := fake.NewClientset(&slice)
	want := driverClaim{driver: checkedDriver, namespace: "team", devices: 1}
	claim, err := want.make(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if claim.Namespace != "team" || claim.Status.Allocation == nil ||
		claim.Status.Allocation.Devices.Results[0].Device != "gpu-0" ||
		claim.Spec.Devices.Requests[0].Exactly.DeviceClassName != checkedDriver {
		t.Errorf("%+v", claim)
	}
	if _, err := want.make(t.Context(), client); err == nil ||
		!strings.Contains(err.Error(), "not 1 free") {
		t.Errorf("the device was given twice: %v", err)
	}
	client = fake.NewClientset(&slice)
	client.PrependReactor("update", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object,
		error) {
		return true, nil, errors.New("it may not")
	})
	if _, err := want.make(t.Context(), client); err == nil || !strings.Contains(err.Error(), "it may not") {
		t.Error(err)
	}
	left, err := client.ResourceV1().ResourceClaims("team").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d claims are left: %v", len(left.Items), err)
	}
}
