package main

import (
	"strings"
	"testing"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/podresources/watchv1"
)

func on(nodes ...int64) *podresourcesv1.TopologyInfo {
	t := &podresourcesv1.TopologyInfo{}
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, &podresourcesv1.NUMANode{ID: n})
	}
	return t
}

func entry(resource, id string, at *podresourcesv1.TopologyInfo) *podresourcesv1.ContainerDevices {
	return &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}, Topology: at}
}

// A line of a watch names what a container holds as a person would.
func TestPodResourcesLines(t *testing.T) {
	pod := &podresourcesv1.PodResources{Namespace: "a", Name: "train", Containers: []*podresourcesv1.ContainerResources{
		{
			Name: "main", CpuIds: []int64{3, 2, 8},
			Memory: []*podresourcesv1.ContainerMemory{{MemoryType: "memory", Size: 1 << 30, Topology: on(0, 1)}},
			Devices: []*podresourcesv1.ContainerDevices{
				entry("x/gpu", "0", on(0)), entry("x/gpu", "1", on(0)), entry("x/gpu", "1", on(1)),
				entry("x/nic", "1", nil),
			},
		},
		{Name: "side"},
	}}
	for _, tt := range []struct {
		event *watchv1.WatchResponse
		want  string
	}{
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_Pod{Pod: &watchv1.Pod{Resources: pod}}},
			"7 POD a train main 2-3,8 memory=1073741824@0+1 x/gpu=0@0,1@0+1 x/nic=1@-\n7 POD a train side - - -"},
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_DeletedPod{
			DeletedPod: &watchv1.DeletedPod{Uid: "u", Namespace: "a", Name: "train"},
		}}, "7 DELETED a train"},
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_Devices{Devices: &watchv1.Devices{
			ResourceName: "x/gpu", DeletedIds: []string{"0", "1"},
		}}}, "7 DEVICES x/gpu - gone:0,1"},
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_Node{Node: &watchv1.Node{CpuIds: []int64{1}}}},
			"7 NODE 1 -"},
		{&watchv1.WatchResponse{}, "7 BOOKMARK"},
	} {
		tt.event.Generation = 7
		var out strings.Builder
		if err := writeEvent(&out, tt.event); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if got := strings.Join(lines, "\n"); got != tt.want {
			t.Errorf("%s\nwant\n%s", got, tt.want)
		}
	}
}
