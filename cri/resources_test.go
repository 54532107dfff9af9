package cri

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

const gi = 1 << 30

func TestContainerResources(t *testing.T) {
	type result = runtimeapi.LinuxContainerResources
	tests := []struct {
		name, resources string
		options         ResourceOptions
		place           Placement
		want            *result
	}{
		{"nothing asked", "", ResourceOptions{}, Placement{},
			&result{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000}},
		{"request", "cpu=1500m..", ResourceOptions{NodeMemory: 16 * gi}, Placement{},
			&result{CpuShares: 1536, CpuPeriod: 100000, OomScoreAdj: 999}},
		{"zero request", "cpu=0..1", ResourceOptions{NodeMemory: gi}, Placement{},
			&result{CpuShares: 2, CpuPeriod: 100000, CpuQuota: 100000, OomScoreAdj: 999}},
		{"limits only", "cpu=..2 memory=..1Gi", ResourceOptions{NodeMemory: 4 * gi}, Placement{},
			&result{CpuShares: 2048, CpuPeriod: 100000, CpuQuota: 200000, MemoryLimitInBytes: gi,
				OomScoreAdj: 750}},
		{"period", "cpu=1m..500m",
			ResourceOptions{Period: 10 * time.Millisecond, NodeMemory: gi}, Placement{},
			&result{CpuShares: 2, CpuPeriod: 10000, CpuQuota: 5000, OomScoreAdj: 999}},
		{"no quota", "cpu=..500m", ResourceOptions{NoQuota: true, NodeMemory: gi},
			Placement{}, &result{CpuShares: 512, OomScoreAdj: 999}},
		{"exclusive CPUs", "cpu=2 memory=1Gi",
			ResourceOptions{NodeMemory: 4 * gi}, Placement{CPUs: "2-3", Mems: "1", Exclusive: true},
			&result{CpuShares: 2048, CpuPeriod: 100000, CpuQuota: -1, MemoryLimitInBytes: gi,
				OomScoreAdj: -997, CpusetCpus: "2-3", CpusetMems: "1"}},
		{"exclusive CPUs without quota", "cpu=2 memory=1Gi", ResourceOptions{NoQuota: true},
			Placement{CPUs: "2-3", Exclusive: true},
			&result{CpuShares: 2048, MemoryLimitInBytes: gi, OomScoreAdj: -997, CpusetCpus: "2-3"}},
		{"huge pages", "hugepages-2Mi=..6Mi",
			ResourceOptions{HugePageSizes: []int64{gi, 2 << 20, 64 << 10}, OOMGroup: true},
			Placement{},
			&result{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000,
				Unified: map[string]string{"memory.oom.group": "1"},
				HugepageLimits: []*runtimeapi.HugepageLimit{
					{PageSize: "64KB"}, {PageSize: "2MB", Limit: 6 << 20}, {PageSize: "1GB"},
				}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := podtest.New("", podtest.Containers("c "+tt.resources))
			got := ContainerResources(pod, &pod.Spec.Containers[0], tt.options, tt.place)
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

// A container without a limit has the pod's (KEP-2837).
func TestPodLimitsAreContainers(t *testing.T) {
	pod := podtest.New("", podtest.Containers("bare", "own cpu=..100m memory=..16Mi"),
		podtest.Resources("cpu=24m..500m memory=..1Gi hugepages-2Mi=..4Mi"))
	o := ResourceOptions{HugePageSizes: []int64{2 << 20}}
	type limits struct{ shares, quota, memory, pages int64 }
	for i, want := range []limits{
		{512, 50000, 1 << 30, 4 << 20}, {102, 10000, 16 << 20, 4 << 20},
	} {
		r := ContainerResources(pod, &pod.Spec.Containers[i], o, Placement{})
		got := limits{r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes,
			int64(r.HugepageLimits[0].Limit)}
		if got != want {
			t.Errorf("container %d has %+v, want %+v", i, got, want)
		}
	}
	if len(pod.Spec.Containers[1].Resources.Limits) != 2 {
		t.Error("the spec is another one now")
	}
}

func TestOOMScoreAdj(t *testing.T) {
	pod := func(containers ...string) *v1.Pod {
		return podtest.New("", podtest.Containers(containers...))
	}
	two := []string{"side~ memory=1Gi..", "init! memory=1Gi..", "a memory=4Gi..", "b memory=2Gi.."}
	fewer, plain := pod(two...), pod(append(two, "c")...)
	critical := pod(two...)
	critical.Spec.PriorityClassName = "system-node-critical"
	podLevel := podtest.New("", podtest.Containers(two...), podtest.Resources("memory=10Gi.."))

	tests := []struct {
		name      string
		pod       *v1.Pod
		container string
		memory    int64
		want      int64
	}{
		{"best effort", pod("a"), "a", 16 * gi, 1000},
		{"by request", fewer, "a", 16 * gi, 750},
		{"no request of its own", plain, "c", 16 * gi, 999},
		{"more than the node", pod("a memory=64Gi.."), "a", 16 * gi, 3},
		{"sidecar as the smallest regular", fewer, "side", 16 * gi, 875},
		{"sidecar beside one without request", plain, "side", 16 * gi, 938},
		{"init container", fewer, "init", 16 * gi, 938},
		{"critical", critical, "a", 16 * gi, -997},
		{"pod request left over", podLevel, "a", 16 * gi, 704}, // 4Gi and a quarter of 3Gi
		{"unknown memory", fewer, "a", 0, 999},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := podspec.Find(tt.pod, tt.container)
			got := OOMScoreAdj(tt.pod, c, tt.memory)
			if got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
