package podresources

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/podtest"
)

// Each container has the claims that it uses, with all devices that drivers prepared.
func TestDynamicResources(t *testing.T) {
	pod := podtest.New("p", podtest.Containers("main", "other"), podtest.Claims("gpu/one=gpus", "nic=nics"))
	claimed := &pod.Spec.Containers[0].Resources.Claims
	*claimed = (*claimed)[:1] // nic is used by no container
	s := Snapshot{Pods: []*v1.Pod{pod}, Claims: func(uid types.UID) []claims.Prepared {
		if uid != "p" {
			return nil
		}
		return []claims.Prepared{{Claim: dra.Claim{Namespace: pod.Namespace, Name: "gpus"},
			Devices: []claims.Device{
				{Driver: "gpu.example.com", Device: dra.Device{Requests: []string{"one"}, Pool: "node",
					Name: "gpu-0", CDI: []string{"example.com/gpu=0", "example.com/gpu=all"}}},
				{Driver: "gpu.example.com", Device: dra.Device{Requests: []string{"two"}, Pool: "node",
					Name: "gpu-1", ShareID: "share"}},
			}}}
	}}
	want := []*podresourcesv1.DynamicResource{{ClaimName: "gpus", ClaimNamespace: pod.Namespace,
		ClaimResources: []*podresourcesv1.ClaimResource{
			{DriverName: "gpu.example.com", PoolName: "node", DeviceName: "gpu-0",
				CdiDevices: []*podresourcesv1.CDIDevice{{Name: "example.com/gpu=0"},
					{Name: "example.com/gpu=all"}}},
			{DriverName: "gpu.example.com", PoolName: "node", DeviceName: "gpu-1",
				ShareId: ptr.To("share")},
		}}}
	got := s.find(pod.Namespace, pod.Name)
	if diff := cmp.Diff(want, got.Containers[0].DynamicResources, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if more := got.Containers[1].DynamicResources; len(more) > 0 {
		t.Errorf("a container without claims has %v", more)
	}
	s.Claims = nil
	if got := s.find(pod.Namespace, pod.Name); len(got.Containers[0].DynamicResources) > 0 {
		t.Errorf("without claims it has %v", got)
	}
}
