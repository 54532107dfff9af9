package cgroups

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

var list = podtest.Amounts

func TestPodResources(t *testing.T) {
	pod := func(containers ...string) *v1.Pod {
		return podtest.New("", podtest.Containers(containers...))
	}
	const full = "c cpu=2 memory=1Gi"
	over := pod("side~ cpu=250m memory=64Mi", full)
	over.Spec.Overhead = list("cpu=250m memory=64Mi")
	none := map[int64]int64{}

	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		opts PodOptions
		want Resources
	}{
		{"best effort", pod("c"), PodOptions{Pids: -1}, Resources{Shares: 2, HugePages: none}},
		{"guaranteed", pod(full), PodOptions{Pids: 100}, Resources{Shares: 2048, Quota: 200000,
			Period: DefaultPeriod, Memory: gi, Pids: 100, HugePages: none}},
		{"guaranteed, exclusive CPUs", pod(full), PodOptions{NoQuota: true}, Resources{
			Shares: 2048, Quota: Unlimited, Period: DefaultPeriod, Memory: gi, HugePages: none}},
		{"another period", pod(full), PodOptions{Period: 10 * time.Millisecond}, Resources{
			Shares: 2048, Quota: 20000, Period: 10 * time.Millisecond, Memory: gi, HugePages: none}},
		{"a container without limits", pod(full, "d cpu=500m.."), PodOptions{},
			Resources{Shares: 2560, HugePages: none}},
		{"a container without memory limit", pod(full, "d cpu=..1"), PodOptions{}, Resources{
			Shares: 2048, Quota: 300000, Period: DefaultPeriod, HugePages: none}},
		{"init container without limits", pod("init! cpu=3..", full), PodOptions{},
			Resources{Shares: 3072, HugePages: none}},
		{"sidecar and overhead add up", over, PodOptions{}, Resources{Shares: 2560, Quota: 250000,
			Period: DefaultPeriod, Memory: gi + 128*mi, HugePages: none}},
		{"pod level", podtest.New("", podtest.Containers("c"), podtest.Resources("cpu=1..4")),
			PodOptions{}, Resources{Shares: 1024, Quota: 400000, Period: DefaultPeriod,
				HugePages: none}},
		{"huge pages", pod(full+" hugepages-2Mi=..64Mi",
			"d cpu=2 memory=1Gi hugepages-2Mi=..32Mi hugepages-1Gi=..2Gi"),
			PodOptions{}, Resources{Shares: 4096, Quota: 400000, Period: DefaultPeriod,
				Memory: 2 * gi, HugePages: map[int64]int64{2 * mi: 96 * mi, gi: 2 * gi}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := PodResources(tc.pod, tc.opts)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestNodeResources(t *testing.T) {
	got := NodeResources(
		list("cpu=8 memory=16Gi hugepages-2Mi=128Mi example.com/gpu=4"), 1000,
		list("cpu=500m memory=1Gi ephemeral-storage=1Gi pid=300"),
		list("cpu=500m hugepages-2Mi=256Mi"))
	want := Resources{Shares: 7168, Memory: 15 * gi, Pids: 700,
		HugePages: map[int64]int64{2 * mi: 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for pids, want := range map[int64]int64{0: 0, 300: 1, 400: 100} {
		if got := NodeResources(list("cpu=1"), pids, list("pid=300")).Pids; got != want {
			t.Errorf("%d processes without 300: %d, want %d", pids, got, want)
		}
	}
}

func TestQOSResources(t *testing.T) {
	got := QOSResources([]*v1.Pod{testPod("g", "cpu=2 memory=1Gi"), testPod("e", ""),
		testPod("b", "cpu=1500m.."), testPod("c", "cpu=500m.. memory=256Mi.."),
	}, []int64{2 * mi}, MemoryQoS{On: true, Reserve: true})
	unbound := map[int64]int64{2 * mi: 1 << 62}
	want := map[v1.PodQOSClass]Resources{
		v1.PodQOSGuaranteed: {Protection: &Protection{Min: gi + gi/4, Low: gi / 4}},
		v1.PodQOSBurstable: {Shares: 2048, HugePages: unbound,
			Protection: &Protection{Low: gi / 4}},
		v1.PodQOSBestEffort: {Shares: 2, HugePages: unbound},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestConvert(t *testing.T) {
	for _, tc := range []struct {
		milli  int64
		shares uint64
		weight uint64
		quota  int64
	}{
		{-1, 2, 1, 0},
		{0, 2, 1, 0},
		{1, 2, 1, 1000},
		{10, 10, 1, 1000},
		{100, 102, 4, 10000},
		{1000, 1024, 39, 100000},
		{2500, 2560, 98, 250000},
		{256000, 262144, 10000, 25600000},
		{1000000, 262144, 10000, 100000000},
	} {
		if got := Shares(tc.milli); got != tc.shares {
			t.Errorf("Shares(%d) = %d, want %d", tc.milli, got, tc.shares)
		}
		if got := Weight(Shares(tc.milli)); got != tc.weight {
			t.Errorf("Weight(Shares(%d)) = %d, want %d", tc.milli, got, tc.weight)
		}
		if got := Quota(tc.milli, DefaultPeriod); got != tc.quota {
			t.Errorf("Quota(%d) = %d, want %d", tc.milli, got, tc.quota)
		}
	}
}

func TestPageSizeName(t *testing.T) {
	for size, want := range map[int64]string{
		64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 1 << 30: "1GB", 16 << 30: "16GB",
	} {
		if got := PageSizeName(size); got != want {
			t.Errorf("PageSizeName(%d) = %s, want %s", size, got, want)
		}
	}
}
