package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
)

func on(nodes ...int64) *podresourcesv1.TopologyInfo {
	t := &podresourcesv1.TopologyInfo{}
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, &podresourcesv1.NUMANode{ID: n})
	}
	return t
}

func entry(resource, id string, at *podresourcesv1.TopologyInfo) *podresourcesv1.ContainerDevices {
	return &podresourcesv1.ContainerDevices{
		ResourceName: resource, DeviceIds: []string{id}, Topology: at,
	}
}

// A line of a watch shows what a container holds in a form for people.
func TestPodResourcesLines(t *testing.T) {
	pod := &podresourcesv1.PodResources{Namespace: "a", Name: "train"}
	pod.Containers = []*podresourcesv1.ContainerResources{
		{
			Name: "main", CpuIds: []int64{3, 2, 8},
			Memory: []*podresourcesv1.ContainerMemory{
				{MemoryType: "memory", Size: 1 << 30, Topology: on(0, 1)},
			},
			Devices: []*podresourcesv1.ContainerDevices{
				entry("x/gpu", "0", on(0)), entry("x/gpu", "1", on(0)), entry("x/gpu", "1", on(1)),
				entry("x/nic", "1", nil),
			},
		},
		{Name: "side"},
	}
	event := &watchv1.WatchResponse_Pod{Pod: &watchv1.Pod{Resources: pod}}
	node := &watchv1.WatchResponse_Node{Node: &watchv1.Node{CpuIds: []int64{1}}}
	for _, tt := range []struct {
		event *watchv1.WatchResponse
		want  string
	}{
		{&watchv1.WatchResponse{Event: event},
			"7 POD a train main 2-3,8 memory=1Gi@0+1 x/gpu=0@0,1@0+1 x/nic=1@-\n" +
				"7 POD a train side - - -"},
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_Pod{Pod: &watchv1.Pod{
			Resources: &podresourcesv1.PodResources{Namespace: "a", Name: "db", CpuIds: []int64{4, 5},
				Containers: []*podresourcesv1.ContainerResources{{Name: "main"}}}}}},
			"7 POD a db * 4-5 - -\n7 POD a db main - - -"},
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_DeletedPod{
			DeletedPod: &watchv1.DeletedPod{Uid: "u", Namespace: "a", Name: "train"},
		}}, "7 DELETED a train"},
		{&watchv1.WatchResponse{Event: &watchv1.WatchResponse_Devices{Devices: &watchv1.Devices{
			ResourceName: "x/gpu", DeletedIds: []string{"0", "1"},
		}}}, "7 DEVICES x/gpu - gone:0,1"},
		{&watchv1.WatchResponse{Event: node},
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

// Allocatable resources have a line for each resource and place; a device of two nodes is named
// once.
func TestAllocatableLines(t *testing.T) {
	var out strings.Builder
	r := newRows(&out)
	r.allocatable(&podresourcesv1.AllocatableResourcesResponse{
		CpuIds: []int64{1, 2, 3, 8},
		Memory: []*podresourcesv1.ContainerMemory{
			{MemoryType: "hugepages-2Mi", Size: 4 << 20, Topology: on(0)},
			{MemoryType: "memory", Size: 3 << 29, Topology: on(1)},
		},
		Devices: []*podresourcesv1.ContainerDevices{
			entry("x/gpu", "0", on(0)), entry("x/gpu", "1", on(1)), entry("x/gpu", "2", on(0)),
			entry("x/gpu", "3", on(0)), entry("x/gpu", "3", on(1)), entry("x/nic", "3", nil),
		},
	})
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `RESOURCE       NUMA  WHAT
cpu            -     1-3,8
hugepages-2Mi  0     4Mi
memory         1     1536Mi
x/gpu          0     0 2
x/gpu          1     1
x/gpu          0+1   3
x/nic          -     3
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}

// A watch that finds no agent says so once, however often it tries.
func TestWatchSaysOnceThatItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tries := 0
		var said strings.Builder
		err := keepWatching(ctx, &said, func() (bool, error) {
			if tries++; tries == 1 {
				return true, status.Error(codes.Unavailable, "EOF")
			}
			return true, status.Error(codes.Unavailable, "nobody listens")
		})
		want := "numalet: the watch ended: EOF; it goes on once the agent answers\n" +
			"numalet: the watch ended: nobody listens; it goes on once the agent answers\n"
		if err != nil || tries < 10 || said.String() != want {
			t.Errorf("%d tries, %v:\n%s", tries, err, said.String())
		}
		for _, end := range []struct {
			heard bool
			code  codes.Code
		}{{true, codes.Unimplemented}, {false, codes.Unavailable}} {
			err := keepWatching(t.Context(), &said, func() (bool, error) {
				return end.heard, status.Error(end.code, "")
			})
			if status.Code(err) != end.code {
				t.Errorf("%+v: %v", end, err)
			}
		}
	})
}
