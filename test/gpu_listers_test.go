package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/test/harness"
)

// gpuOf returns the GPU or MIG device behind a plugin's device, as monitoring agents do: for a
// share, the part before "::".
func gpuOf(id string) string {
	gpu, _, _ := strings.Cut(id, "::")
	return gpu
}

// Programs that list what pods hold, such as exporters of GPU metrics, find shares and MIG devices
// by the GPU plugin's ids, each with its NUMA node.
func TestGPUsForListers(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	file := filepath.Join(n.Dir, "gpus.yaml")
	if err := os.WriteFile(file, []byte("version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: "+
		"{resources: [{name: nvidia.com/gpu, replicas: 2}]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, do := gpuPlugin(t, n, "--config-file="+file)
	do("mig 0 on")
	do("divide 0 1g.10gb=7")
	const mig = "nvidia.com/mig-1g.10gb"
	n.Pod("part", limited("part", "cpu: 1, "+mig+": 2"))
	n.AwaitPhase("part-node", v1.PodRunning) // from now on the plugin knows that the GPU is divided
	n.Pod("shared", limited("shared", "cpu: 1, nvidia.com/gpu: 1"))
	n.AwaitPhase("shared-node", v1.PodRunning)

	client, ctx := podresourcesv1.NewPodResourcesListerClient(podResources(n, t)), context.Background()
	list, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string][]string{}
	for _, pod := range list.PodResources {
		one, err := client.Get(ctx, &podresourcesv1.GetPodResourcesRequest{
			PodName: pod.Name, PodNamespace: pod.Namespace})
		if err != nil || one.PodResources.String() != pod.String() {
			t.Errorf("of %s one is told %v, %v, and in the list %v", pod.Name, one, err, pod)
		}
		held[pod.Name] = listedDevices(t, pod.Containers[0].Devices)
	}
	if s := held["shared-node"]; len(s) != 1 || !strings.HasPrefix(s[0], nvidiaGPU+" GPU-") ||
		!strings.Contains(s[0], "::") {
		t.Errorf("the share is %q", s)
	}
	if p := held["part-node"]; len(p) != 2 || !strings.HasPrefix(p[0], mig+" MIG-") || p[0] == p[1] ||
		strings.Contains(p[0], "::") {
		t.Errorf("the parts of a GPU are %q", p)
	}

	all, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	offered, shares := listedDevices(t, all.Devices), map[string]int{}
	for _, d := range offered {
		shares[gpuOf(d)]++
	}
	gpus, parts := 0, 0
	for gpu, n := range shares {
		switch {
		case strings.HasPrefix(gpu, nvidiaGPU+" GPU-") && n == 2:
			gpus++
		case strings.HasPrefix(gpu, mig+" MIG-") && n == 1:
			parts++
		default:
			t.Errorf("%s is offered %d times", gpu, n)
		}
	}
	if gpus != 7 || parts != 7 {
		t.Errorf("%d GPUs and %d parts of one are offered: %q", gpus, parts, offered)
	}
	for name, ids := range held {
		for _, id := range ids {
			if !slices.Contains(offered, id) {
				t.Errorf("%s holds %s, which is not offered", name, id)
			}
		}
	}
}

// listedDevices returns resource and id of each device, and checks that each is on one NUMA node.
func listedDevices(t *testing.T, all []*podresourcesv1.ContainerDevices) (out []string) {
	t.Helper()
	for _, d := range all {
		for _, id := range d.DeviceIds {
			if len(d.Topology.GetNodes()) != 1 {
				t.Errorf("%s is on nodes %v", id, d.Topology)
			}
			out = append(out, fmt.Sprintf("%s %s", d.ResourceName, id))
		}
	}
	return out
}
