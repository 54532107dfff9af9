package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// file makes a file of a cgroup.
func (h host) file(name, text string) {
	h.t.Helper()
	h.mkdir(filepath.Dir(filepath.Join(h.mount, name)))
	if err := os.WriteFile(filepath.Join(h.mount, name), []byte(text+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func expectLimit(t *testing.T, what string, read func() (CPULimit, error), want CPULimit) {
	t.Helper()
	if got, err := read(); got != want || err != nil {
		t.Errorf("%s has the quota %v, %v; want %v", what, got, err, want)
	}
}

// TestCPULimits reads the quotas of a container and of its pod, and changes the pod's.
func TestCPULimits(t *testing.T) {
	for _, class := range classes() {
		pod := podGroup(nil, class, "a-b").path(Cgroupfs)
		h := newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory")
		h.write("/cpuset"+pod+"/c0ffee", "2-3")
		h.file("/cpu"+pod+"/c0ffee/cpu.cfs_quota_us", "200000")
		h.file("/cpu"+pod+"/c0ffee/cpu.cfs_period_us", "100000")
		h.file("/cpu"+pod+"/cpu.cfs_quota_us", "-1")
		h.file("/cpu"+pod+"/cpu.cfs_period_us", "50000")
		testCPULimits(t, h.treeOf(Cgroupfs), 50000)
		expect(t, h.mount+"/cpu"+pod, "cpu.cfs_quota_us", "-1", "cpu.cfs_period_us", "100000")

		h = newHost(t).unified(allControllers)
		h.write(pod+"/c0ffee", "2-3")
		h.file(pod+"/c0ffee/cpu.max", "200000 100000")
		h.file(pod+"/cpu.max", "max 100000")
		testCPULimits(t, h.treeOf(Cgroupfs), 100000)
		expect(t, h.mount+pod, "cpu.max", "max 100000")
	}
}

func testCPULimits(t *testing.T, tree *Tree, period int64) {
	t.Helper()
	c, err := tree.FindContainer("a-b", "c0ffee")
	if err != nil {
		t.Fatal(err)
	}
	expectLimit(t, "the container", c.CPULimit, CPULimit{200000, 100000})
	pod, err := tree.FindPod("a-b")
	if err != nil {
		t.Fatal(err)
	}
	expectLimit(t, "the pod", pod.CPULimit, CPULimit{Unlimited, period})
	for _, l := range []CPULimit{{150000, 50000}, {Unlimited, 100000}} {
		if err := pod.SetCPULimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		expectLimit(t, "the pod", pod.CPULimit, l)
	}
	for _, uid := range []types.UID{"other", "", "../a-b"} {
		if got, err := tree.FindPod(uid); err == nil {
			t.Errorf("pod %q has %v", uid, got)
		}
	}
	gone := pod
	gone.cpu.path += "-gone"
	if err := gone.SetCPULimit(t.Context(), CPULimit{1000, 1000}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a cgroup that is gone: %v", err)
	}
	if exists(gone.cpu.path) {
		t.Error("a cgroup that was gone has been made")
	}
}

// After the kernel of cgroup v1 refuses a part of a limit, the old limit is back instead of none.
func TestRefusedCPULimit(t *testing.T) {
	pod := podGroup(nil, v1.PodQOSGuaranteed, "a-b").path(Cgroupfs)
	h := newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory")
	h.file("/cpu"+pod+"/cpu.cfs_quota_us", "20000")
	const readOnly = "/proc/sys/kernel/ngroups_max" // holds a number, and cannot be written
	if err := os.Symlink(readOnly, filepath.Join(h.mount, "cpu", pod, periodFile)); err != nil {
		t.Fatal(err)
	}
	found, err := h.treeOf(Cgroupfs).FindPod("a-b")
	if err != nil {
		t.Fatal(err)
	}
	before, err := found.CPULimit()
	if err != nil || before.Quota != 20000 {
		t.Fatalf("the pod has the quota %v, %v", before, err)
	}
	if err := found.SetCPULimit(t.Context(), CPULimit{10000, before.Period + 1}); err == nil {
		t.Error("nobody was told that the limit was refused")
	}
	expectLimit(t, "the pod", found.CPULimit, before)
}

// systemd would reset a limit that it does not know.
func TestCPULimitThroughSystemd(t *testing.T) {
	h := newHost(t).unified(allControllers)
	tree, b := newSystemdTree(t, h)
	pod := podGroup(nil, v1.PodQOSGuaranteed, "0c-1")
	h.file(pod.path(Systemd)+"/cpu.max", "max 100000")
	found, err := tree.FindPod("0c-1")
	if err == nil {
		err = found.SetCPULimit(t.Context(), CPULimit{33300, 100000})
	}
	if err != nil {
		t.Fatal(err)
	}
	expect(t, h.mount+pod.path(Systemd), "cpu.max", "33300 100000")
	want := []string{"set kubepods-pod0c_1.slice CPUQuotaPeriodUSec=100000 " +
		"CPUQuotaPerSecUSec=340000"}
	if !slices.Equal(b.calls, want) {
		t.Errorf("systemd was told %q, want %q", b.calls, want)
	}
}

func TestSameCPULimit(t *testing.T) {
	for _, c := range []struct {
		a, b CPULimit
		same bool
	}{
		{CPULimit{Unlimited, 100000}, CPULimit{Quota: Unlimited}, true},
		{CPULimit{1000, 1000}, CPULimit{1000, 1000}, true},
		{CPULimit{1000, 1000}, CPULimit{2000, 2000}, false},
		{CPULimit{1000, 1000}, CPULimit{Unlimited, 1000}, false},
	} {
		if c.a.Same(c.b) != c.same || c.b.Same(c.a) != c.same {
			t.Errorf("%v and %v: the same is %v", c.a, c.b, !c.same)
		}
	}
	for _, text := range []string{"", "max", "x 1", "1 x"} {
		if got, err := parseCPULimit(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestCPULimitOnHost writes the values on the kernel of this machine. On cgroup v1 it refuses more
// for a group than its parents have.
func TestCPULimitOnHost(t *testing.T) {
	root, _ := ownRoot(t)
	tree, err := New(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	pod := testPod("aa-11", "cpu=2 memory=64Mi")
	err = errors.Join(tree.EnsureNode(t.Context(), Resources{}),
		madePod(t.Context(), tree, pod, PodOptions{}))
	found, err1 := tree.FindPod(pod.UID)
	if err := errors.Join(err, err1); err != nil {
		t.Fatal(err)
	}
	expectLimit(t, "the pod", found.CPULimit, CPULimit{200000, 100000})
	inside := podGroup(tree.root, v1.PodQOSGuaranteed, pod.UID).child("c")
	limit := Resources{Quota: 200000, Period: DefaultPeriod}
	if err := tree.kernel.apply(inside.path(Cgroupfs), limit); err != nil {
		t.Fatal(err)
	}
	for _, l := range []CPULimit{{Unlimited, 100000}, {100000, 50000}, {200000, 100000}} {
		if err := found.SetCPULimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		expectLimit(t, "the pod", found.CPULimit, l)
	}
	if used, err := found.MemoryUsed(); err != nil || used < 0 {
		t.Errorf("the pod uses %d bytes, %v", used, err)
	}
	more := Resources{Shares: 512, Memory: 128 << 20}
	if err := found.Set(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	_, v2 := tree.kernel.(*unified)
	memory, want := "memory.limit_in_bytes", []string{"cpu.shares", "512"}
	if v2 {
		memory, want = "memory.max", []string{"cpu.weight", "20"}
	}
	expect(t, found.cpu.path, want...)
	expect(t, tree.dir("memory", found.group).path, memory, "134217728")
	expectLimit(t, "the pod", found.CPULimit, CPULimit{200000, 100000})
	if err := tree.RemovePod(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if err := found.Set(t.Context(), more); !errors.Is(err, fs.ErrNotExist) || exists(found.cpu.path) {
		t.Errorf("the pod's cgroup is gone: %v; made again: %v", err, exists(found.cpu.path))
	}
}

// TestPeriodOnHost makes a pod's cgroup again after cpuCFSQuotaPeriod changed, with a container in
// it. The kernel of cgroup v1 refuses a period with which the pod's quota is less than the
// container's, so the order of the two values matters.
func TestPeriodOnHost(t *testing.T) {
	root, _ := ownRoot(t)
	tree, err := New(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.EnsureNode(t.Context(), Resources{}); err != nil {
		t.Fatal(err)
	}
	pod := testPod("aa-11", "cpu=2 memory=64Mi")
	inside := podGroup(tree.root, v1.PodQOSGuaranteed, pod.UID).child("c")
	for _, period := range []time.Duration{DefaultPeriod, 10 * time.Millisecond, DefaultPeriod} {
		if err := madePod(t.Context(), tree, pod, PodOptions{Period: period}); err != nil {
			t.Fatal(err)
		}
		limit := Resources{Quota: 200000, Period: DefaultPeriod}
		if err := tree.kernel.apply(inside.path(Cgroupfs), limit); err != nil {
			t.Fatal(err)
		}
		found, err := tree.FindPod(pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		us := period.Microseconds()
		expectLimit(t, "the pod", found.CPULimit, CPULimit{2 * us, us})
	}
	if err := tree.RemovePod(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
}
