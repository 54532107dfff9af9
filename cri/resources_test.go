package cri

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

const gi = 1 << 30

func TestContainerResources(t *testing.T) {
	type result = runtimeapi.LinuxContainerResources
	tests := []struct {
		name             string
		requests, limits v1.ResourceList
		options          ResourceOptions
		place            Placement
		want             *result
	}{
		{"nothing asked", nil, nil, ResourceOptions{}, Placement{},
			&result{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000}},
		{"request", list("cpu=1500m"), nil, ResourceOptions{NodeMemory: 16 * gi}, Placement{},
			&result{CpuShares: 1536, CpuPeriod: 100000, OomScoreAdj: 999}},
		{"zero request", list("cpu=0"), list("cpu=1"),
			ResourceOptions{NodeMemory: gi}, Placement{},
			&result{CpuShares: 2, CpuPeriod: 100000, CpuQuota: 100000, OomScoreAdj: 999}},
		{"limits only", nil, list("cpu=2 memory=1Gi"),
			ResourceOptions{NodeMemory: 4 * gi}, Placement{},
			&result{CpuShares: 2048, CpuPeriod: 100000, CpuQuota: 200000, MemoryLimitInBytes: gi,
				OomScoreAdj: 750}},
		{"period", list("cpu=1m"), list("cpu=500m"),
			ResourceOptions{Period: 10 * time.Millisecond, NodeMemory: gi}, Placement{},
			&result{CpuShares: 2, CpuPeriod: 10000, CpuQuota: 5000, OomScoreAdj: 999}},
		{"no quota", nil, list("cpu=500m"), ResourceOptions{NoQuota: true, NodeMemory: gi},
			Placement{}, &result{CpuShares: 512, OomScoreAdj: 999}},
		{"exclusive CPUs", list("cpu=2 memory=1Gi"),
			list("cpu=2 memory=1Gi"),
			ResourceOptions{NodeMemory: 4 * gi}, Placement{CPUs: "2-3", Mems: "1", Exclusive: true},
			&result{CpuShares: 2048, CpuPeriod: 100000, CpuQuota: -1, MemoryLimitInBytes: gi,
				OomScoreAdj: -997, CpusetCpus: "2-3", CpusetMems: "1"}},
		{"exclusive CPUs without quota", list("cpu=2 memory=1Gi"),
			list("cpu=2 memory=1Gi"), ResourceOptions{NoQuota: true},
			Placement{CPUs: "2-3", Exclusive: true},
			&result{CpuShares: 2048, MemoryLimitInBytes: gi, OomScoreAdj: -997, CpusetCpus: "2-3"}},
		{"huge pages", nil, list("hugepages-2Mi=6Mi"),
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
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c",
				Resources: v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}}}}}
			got := ContainerResources(pod, &pod.Spec.Containers[0], tt.options, tt.place)
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

// A container without a limit has the pod's (KEP-2837).
func TestPodLimitsAreContainers(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Resources: &v1.ResourceRequirements{
			Requests: list("cpu=24m"),
			Limits:   list("cpu=500m memory=1Gi hugepages-2Mi=4Mi"),
		},
		Containers: []v1.Container{{Name: "bare"}, {Name: "own",
			Resources: v1.ResourceRequirements{Limits: list("cpu=100m memory=16Mi")}}},
	}}
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
	memory := func(name, request string) v1.Container {
		c := v1.Container{Name: name}
		if request != "" {
			c.Resources.Requests = list("memory=" + request)
		}
		return c
	}
	sidecar := func(c v1.Container) v1.Container {
		c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		return c
	}
	plain := v1.PodSpec{
		InitContainers: []v1.Container{sidecar(memory("side", "1Gi")), memory("init", "1Gi")},
		Containers:     []v1.Container{memory("a", "4Gi"), memory("b", "2Gi"), memory("c", "")},
	}
	fewer := v1.PodSpec{InitContainers: plain.InitContainers, Containers: plain.Containers[:2]}
	critical := fewer
	critical.PriorityClassName = "system-node-critical"
	podLevel := fewer
	podLevel.Resources = &v1.ResourceRequirements{Requests: list("memory=10Gi")}
	best := v1.PodSpec{Containers: []v1.Container{memory("a", "")}}
	huge := v1.PodSpec{Containers: []v1.Container{memory("a", "64Gi")}}

	tests := []struct {
		name      string
		spec      v1.PodSpec
		container string
		memory    int64
		want      int64
	}{
		{"best effort", best, "a", 16 * gi, 1000},
		{"by request", fewer, "a", 16 * gi, 750},
		{"no request of its own", plain, "c", 16 * gi, 999},
		{"more than the node", huge, "a", 16 * gi, 3},
		{"sidecar as the smallest regular", fewer, "side", 16 * gi, 875},
		{"sidecar beside one without request", plain, "side", 16 * gi, 938},
		{"init container", fewer, "init", 16 * gi, 938},
		{"critical", critical, "a", 16 * gi, -997},
		{"pod request left over", podLevel, "a", 16 * gi, 704}, // 4Gi and a quarter of 3Gi
		{"unknown memory", fewer, "a", 0, 999},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: tt.spec}
			c, _ := podspec.Find(pod, tt.container)
			got := OOMScoreAdj(pod, c, tt.memory)
			if got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
