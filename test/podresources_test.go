package test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/test/harness"
)

// TestPodResources: the pod resources socket reports the same as /placements, for active pods.
func TestPodResources(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-3")
	n.Pod("own", limited("own", "cpu: 4, memory: 1Gi, example.com/gpu: 2"))
	n.Pod("shared", plain("shared"))
	n.AwaitPhase("own-node", v1.PodRunning)
	n.AwaitPhase("shared-node", v1.PodRunning)

	client := podresourcesv1.NewPodResourcesListerClient(podResources(n, t))
	list, err := client.List(context.Background(), &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	rows := placements(t, n)
	var names []string
	for _, pod := range list.PodResources {
		names = append(names, pod.Name)
		row := rows[pod.Name+"/"+pod.Containers[0].Name]
		var cpus []int
		for _, id := range pod.Containers[0].CpuIds {
			cpus = append(cpus, int(id))
		}
		if got := cpuset.New(cpus...).String(); row.Exclusive && got != row.CPUs ||
			!row.Exclusive && got != "" {
			t.Errorf("%s: cpu_ids %s, placement %+v", pod.Name, got, row)
		}
		var devices []string
		for _, d := range pod.Containers[0].Devices {
			devices = append(devices, d.DeviceIds...)
		}
		if !slices.Equal(devices, row.Devices["example.com/gpu"]) {
			t.Errorf("%s: devices %v, placement %+v", pod.Name, devices, row)
		}
	}
	if want := []string{"own-node", "shared-node"}; !slices.Equal(names, want) {
		t.Errorf("pods %v, want %v", names, want)
	}
	n.RemovePod("own")
	n.AwaitGone("own-node")
	n.Eventually("a pod that is gone is not listed", func() error {
		list, err := client.List(context.Background(), &podresourcesv1.ListPodResourcesRequest{})
		if err == nil && len(list.PodResources) != 1 {
			err = fmt.Errorf("%d pods are listed", len(list.PodResources))
		}
		return err
	})
}
