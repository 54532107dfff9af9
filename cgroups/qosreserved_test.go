package cgroups

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestReserve: lower classes get what the requests of higher ones leave, in the kubelet's numbers.
func TestReserve(t *testing.T) {
	pods := []*v1.Pod{
		testPod("g", "cpu=1 memory=1Gi"), testPod("b", "memory=512Mi.."), testPod("e", ""),
	}
	for _, tt := range []struct {
		reserve Reserve
		want    map[v1.PodQOSClass]int64
	}{
		{Reserve{}, nil},
		{Reserve{Memory: 8 * gi}, nil},
		{Reserve{Percent: 50}, nil},
		{Reserve{100, 8 * gi}, map[v1.PodQOSClass]int64{
			v1.PodQOSBurstable: 7 * gi, v1.PodQOSBestEffort: 7*gi - 512*mi}},
		{Reserve{50, 8 * gi}, map[v1.PodQOSClass]int64{
			v1.PodQOSBurstable: 8*gi - 512*mi, v1.PodQOSBestEffort: 8*gi - 768*mi}},
	} {
		if diff := cmp.Diff(tt.want, tt.reserve.limits(pods)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.reserve, diff)
		}
	}
}

// TestReserveFiles: the limits are written for pods that come and go; one below what is used would
// kill, so it is what is used then. Another run of the agent, without the setting, lifts them.
func TestReserveFiles(t *testing.T) {
	rewritable(t)
	h := newHost(t).unified(allControllers, "/kubepods", "/kubepods/burstable",
		"/kubepods/besteffort")
	tree := h.tree(Config{})
	limits := func(burstable, bestEffort string) {
		t.Helper()
		expect(t, h.mount+"/kubepods/burstable", "memory.max", burstable)
		expect(t, h.mount+"/kubepods/besteffort", "memory.max", bestEffort)
	}
	ensure := func() {
		t.Helper()
		node := NodeResources(list("cpu=4 memory=8Gi"), 0)
		if err := tree.EnsureNode(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		limits("9223372036854775807", "9223372036854775807")
	}
	update := func(percent int64, pods ...*v1.Pod) {
		t.Helper()
		if err := tree.UpdateQOS(t.Context(), pods, Reserve{percent, 8 * gi}); err != nil {
			t.Fatal(err)
		}
	}
	guaranteed, burstable := testPod("g", "cpu=1 memory=6Gi"), testPod("b", "memory=1Gi..")
	ensure()
	update(0, guaranteed)
	limits("9223372036854775807", "9223372036854775807")
	update(100, guaranteed, burstable)
	limits("2147483648", "1073741824")
	used := filepath.Join(h.mount, "kubepods/besteffort")
	for file, text := range map[string]string{
		"memory.current": "1500000000\n", "memory.reclaim": "",
	} {
		if err := os.WriteFile(filepath.Join(used, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	update(100, guaranteed, burstable)
	limits("2147483648", "1500000000")
	expect(t, used, "memory.reclaim", "426258176")
	update(100)
	limits("8589934592", "8589934592")
	ensure()
}
