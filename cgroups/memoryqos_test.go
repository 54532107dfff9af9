package cgroups

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/podtest"
)

// madePod makes the cgroup of a pod with all that follows from its spec.
func madePod(ctx context.Context, tree *Tree, pod *v1.Pod, o PodOptions) error {
	r := PodResources(pod, o)
	tree.memory.AddPod(&r, pod)
	return tree.EnsurePod(ctx, pod, r)
}

func TestMemoryQoSOfPods(t *testing.T) {
	half := MemoryQoS{On: true, Throttle: 0.5}
	tiered := MemoryQoS{On: true, Reserve: true}
	own := func(resources string) *v1.Pod {
		return podtest.New("p", podtest.Containers("c"), podtest.Resources(resources))
	}
	burstable := testPod("b", "memory=1Gi..2Gi")
	for _, tc := range []struct {
		name string
		qos  MemoryQoS
		pod  *v1.Pod
		keep Protection
		high int64
	}{
		{"gate off", MemoryQoS{Reserve: true, Throttle: 0.5}, burstable, Protection{}, Unlimited},
		{"nothing reserved", MemoryQoS{On: true}, burstable, Protection{}, Unlimited},
		{"burstable", tiered, burstable, Protection{Low: gi}, Unlimited},
		{"guaranteed", tiered, testPod("g", "cpu=1 memory=1Gi"), Protection{Min: gi}, Unlimited},
		{"best effort", tiered, testPod("e", ""), Protection{}, Unlimited},
		{"throttled by container", half, burstable, Protection{}, Unlimited},
		{"limits of the pod", half, own("memory=1Gi..2Gi"), Protection{}, gi + gi/2},
		{"request of the pod", half, own("memory=1Gi.."), Protection{}, Unlimited},
		{"the limit is the request", half, own("memory=1Gi"), Protection{}, Unlimited},
		{"whole pages", half, own("memory=..1000k"), Protection{},
			500_000 / int64(os.Getpagesize()) * int64(os.Getpagesize())},
		{"less than a page more", half, own("memory=1Gi..1073742000"), Protection{}, Unlimited},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Resources
			tc.qos.AddPod(&r, tc.pod)
			want := Resources{Protection: &tc.keep, High: tc.high}
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The cgroups above a pod keep at least what the pod keeps: the kernel gives no more than they
// have.
func TestMemoryQoSFiles(t *testing.T) {
	ctx := t.Context()
	h := newHost(t).unified(allControllers, "/kubepods", "/kubepods/burstable")
	registry := metrics.NewKubeRegistry()
	tree := h.tree(Config{
		MemoryQoS: MemoryQoS{On: true, Reserve: true}, Registry: registry})
	if err := tree.EnsureNode(ctx, NodeResources(list("memory=8Gi"), 0)); err != nil {
		t.Fatal(err)
	}
	pods := []*v1.Pod{testPod("g1", "cpu=1 memory=64Mi"), testPod("b1", "memory=32Mi..")}
	for _, pod := range pods {
		if err := madePod(ctx, tree, pod, PodOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.UpdateQOS(ctx, pods, Reserve{}); err != nil {
		t.Fatal(err)
	}
	all := h.mount + "/kubepods"
	expect(t, all+"/podg1", "memory.min", "67108864", "memory.low", "0")
	expect(t, all+"/burstable/podb1", "memory.min", "0", "memory.low", "33554432")
	expect(t, all+"/burstable", "memory.min", "0", "memory.low", "33554432")
	expect(t, all, "memory.min", "100663296", "memory.low", "33554432", "memory.max", "8589934592")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if g := f.GetMetric()[0].GetGauge(); g != nil {
			got[f.GetName()] = g.GetValue()
		}
	}
	if diff := cmp.Diff(map[string]float64{
		"kubelet_memory_qos_node_memory_min_bytes": 64 * mi,
		"kubelet_memory_qos_node_memory_low_bytes": 32 * mi,
	}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	// Another run of the agent makes the node's cgroups before it knows the pods.
	if err := tree.EnsureNode(ctx, NodeResources(list("memory=8Gi"), 0)); err != nil {
		t.Fatal(err)
	}
	expect(t, all, "memory.min", "100663296")
	if err := tree.UpdateQOS(ctx, nil, Reserve{}); err != nil {
		t.Fatal(err)
	}
	expect(t, all, "memory.min", "0", "memory.low", "0")
	expect(t, all+"/burstable", "memory.low", "0")
}
