package cgroups

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// TestClaimsBring: what claims bring counts for the cgroup of the pod, its requests and, as far as
// the pod has limits, these, and for the groups of the QoS classes.
func TestClaimsBring(t *testing.T) {
	brings := podtest.Brings([]string{"a", "b"}, "cpu=2 memory=1Gi hugepages-2Mi=8Mi", "memory=100Mi",
		"memory=50Mi")
	limited := podtest.New("p", podtest.Containers("a cpu=1 memory=512Mi",
		"b cpu=1 memory=512Mi"), brings)
	half := podtest.New("p", podtest.Containers("a cpu=1 memory=512Mi", "b"), brings)
	pages := map[int64]int64{2 * mi: 8 * mi}
	const quota = 100 * time.Millisecond
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want Resources
		low  int64
	}{
		"guaranteed": {limited, Resources{Shares: 4096, Quota: 400_000, Period: quota,
			Memory: 2248 * mi, HugePages: pages}, 0},
		"no limits": {half, Resources{Shares: 3072, HugePages: pages}, 1736 * mi},
		"best effort": {podtest.New("p", podtest.Containers("a", "b"), brings),
			Resources{Shares: 2, HugePages: pages}, 1224 * mi},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, PodResources(test.pod, PodOptions{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			var r Resources
			MemoryQoS{On: true, Reserve: true}.AddPod(&r, test.pod)
			if r.Protection.Low != test.low {
				t.Errorf("memory.low %d, want %d", r.Protection.Low, test.low)
			}
		})
	}
	qos := QOSResources([]*v1.Pod{limited, half}, nil, MemoryQoS{On: true, Reserve: true})
	if burstable := qos[v1.PodQOSBurstable]; burstable.Shares != 3072 ||
		burstable.Protection.Low != 1736*mi {
		t.Errorf("burstable pods have %+v", burstable)
	}
	left := Reserve{Percent: 100, Memory: 8 * gi}.limits([]*v1.Pod{limited, half})
	want := map[v1.PodQOSClass]int64{
		v1.PodQOSBurstable: 8*gi - 2248*mi, v1.PodQOSBestEffort: 8*gi - (2248+1736)*mi}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
