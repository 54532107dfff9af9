package cri

import (
	"os"
	"strconv"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// TestClaimsBring: what claims bring is added to the limits of the containers that use them, and to
// the sandbox, as a kubelet 1.37 with DRANodeAllocatableResources does.
func TestClaimsBring(t *testing.T) {
	type got struct{ shares, quota, memory, pages, oom int64 }
	const (
		mapping = "cpu=2 memory=1Gi hugepages-2Mi=8Mi"
		mi      = gi / 1024
	)
	for name, test := range map[string]struct {
		containers []string
		users      []string
		mapping    string
		ofPod      podtest.Option
		want       map[string]got
		sandbox    got
	}{
		"both": {[]string{"a cpu=1 memory=512Mi", "b"}, []string{"a", "b"}, mapping, nil,
			map[string]got{
				"a": {1024, 300_000, 1686 * mi, 8 * mi, 932}, // 512 and a half of 1124, and 50 Mi
				"b": {2, 0, 0, 8 * mi, 963},
			}, got{3072, 300_000, 1736 * mi, 0, 0}},
		"one": {[]string{"a cpu=1 memory=512Mi", "b"}, []string{"b"}, mapping, nil,
			map[string]got{
				"a": {1024, 100_000, 512 * mi, 0, 969},
				"b": {2, 0, 0, 8 * mi, 929},
			}, got{3072, 300_000, 1686 * mi, 0, 0}},
		"limits of the pod": {[]string{"a", "b cpu=1"}, []string{"a", "b"}, mapping, podtest.Resources("cpu=..4 memory=2Gi..4Gi"),
			map[string]got{
				"a": {4096, 400_000, 4096 * mi, 8 * mi, 938}, // 612 and a half of 2048-1224
				"b": {1024, 300_000, 4096 * mi, 8 * mi, 938},
			}, got{3072, 400_000, 4096 * mi, 0, 0}},
		"huge pages of the pod": {[]string{"a memory=1Gi", "b memory=1Gi hugepages-2Mi=2Mi"},
			[]string{"a", "b"}, "hugepages-2Mi=8Mi", podtest.Resources("memory=2Gi.. hugepages-2Mi=..16Mi"),
			map[string]got{
				"a": {2, 0, 1174 * mi, 16 * mi, 932},
				"b": {2, 0, 1174 * mi, 10 * mi, 932},
			}, got{2, 0, 2248 * mi, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.New("p", podtest.Containers(test.containers...),
				podtest.Brings(test.users, test.mapping, "memory=100Mi", "memory=50Mi"), test.ofPod)
			o := ResourceOptions{NodeMemory: 16 * gi, HugePageSizes: []int64{2 << 20}}
			for name, want := range test.want {
				c, _ := podspec.Find(pod, name)
				r := ContainerResources(pod, c, o, Placement{})
				have := got{r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes,
					int64(r.HugepageLimits[0].Limit), r.OomScoreAdj}
				if have != want {
					t.Errorf("container %s has %+v, want %+v", name, have, want)
				}
			}
			r := podDemand(pod).linux(o)
			if have := (got{r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes, 0, 0}); have != test.sandbox {
				t.Errorf("the sandbox has %+v, want %+v", have, test.sandbox)
			}
		})
	}
}

// TestThrottledAboveClaims: memory that claims bring counts for memory.high; a container whose limit
// is its request stays without.
func TestThrottledAboveClaims(t *testing.T) {
	page := int64(os.Getpagesize())
	for limit, want := range map[string]string{
		"2Gi": strconv.FormatInt((gi+(gi+3*gi/2)*9/10)/page*page, 10), "1Gi": "",
	} {
		pod := podtest.New("p", podtest.Containers("a memory=1Gi.."+limit),
			podtest.Brings([]string{"a"}, "memory=1536Mi", "", ""))
		var r runtimeapi.LinuxContainerResources
		m := MemoryQoS{Unified: true, MemoryQoS: cgroups.MemoryQoS{On: true, Throttle: 0.9}}
		m.add(&r, pod, &pod.Spec.Containers[0])
		if high := r.Unified["memory.high"]; high != want {
			t.Errorf("limit %s: memory.high %q, want %q", limit, high, want)
		}
	}
}
