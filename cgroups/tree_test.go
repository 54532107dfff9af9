package cgroups

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/podtest"
)

// host is a directory instead of /sys/fs/cgroup. The kernel would make control files with a cgroup;
// here a test makes them beforehand if it needs them. The library refuses files that are no kernel's,
// except in its TestMode, in which it makes the files that it writes.
type host struct {
	t         *testing.T
	mount     string
	hugePages string
}

func newHost(t *testing.T) host {
	oci.TestMode = true
	t.Cleanup(func() { oci.TestMode = false })
	dir := t.TempDir()
	h := host{t, filepath.Join(dir, "cgroup"), filepath.Join(dir, "hugepages")}
	h.mkdir(filepath.Join(h.hugePages, "hugepages-2048kB"))
	return h
}

// rewritable skips if files cannot be written twice: the cgroup library makes files without
// permissions, which only matters where the kernel has not made them.
func rewritable(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: writes files without permissions")
	}
}

func (h host) mkdir(dir string) {
	h.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) tree(c Config) *Tree {
	h.t.Helper()
	tree, err := New(h.config(c))
	if err != nil {
		h.t.Fatal(err)
	}
	return tree
}

// unified makes it a cgroup v2 host with these groups and controllers.
func (h host) unified(controllers string, groups ...string) host {
	for _, g := range append(groups, "/") {
		dir := filepath.Join(h.mount, g)
		h.mkdir(dir)
		for name, text := range map[string]string{
			"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": "",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	return h
}

func (h host) legacy(controllers ...string) host {
	for _, c := range controllers {
		h.mkdir(filepath.Join(h.mount, c))
	}
	return h
}

func (h host) config(c Config) Config {
	c.Mount, c.HugePages = h.mount, h.hugePages
	return c
}

// expect compares files of a cgroup with name, content pairs.
func expect(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		file := filepath.Join(dir, pairs[i])
		_ = os.Chmod(file, 0o644) // a file that the kernel has not made lacks permissions
		got, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		} else if strings.TrimSpace(string(got)) != pairs[i+1] {
			t.Errorf("%s is %q, want %q", file, got, pairs[i+1])
		}
	}
}

// testPod returns a pod with one container of these resources.
func testPod(uid, resources string) *v1.Pod {
	return podtest.New(uid, podtest.Containers("c "+resources))
}

const allControllers = "cpuset cpu io memory hugetlb pids"

func TestUnified(t *testing.T) {
	rewritable(t)
	ctx := t.Context()
	h := newHost(t).unified(allControllers, "/kubepods", "/kubepods/burstable")
	tree := h.tree(Config{})
	node := NodeResources(list("cpu=4 memory=8Gi"), 500)
	if err := tree.EnsureNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	burstable := testPod("b1", "cpu=500m..1 hugepages-2Mi=..4Mi")
	for range 2 {
		if err := madePod(ctx, tree, burstable, PodOptions{Pids: 64}); err != nil {
			t.Fatal(err)
		}
		if err := tree.UpdateQOS(ctx, []*v1.Pod{burstable}, Reserve{}); err != nil {
			t.Fatal(err)
		}
	}
	enabled := "+cpu +cpuset +memory +pids +hugetlb"
	expect(t, h.mount, "cgroup.subtree_control", enabled)
	expect(t, h.mount+"/kubepods", "cgroup.subtree_control", enabled,
		"cpu.weight", "157", "memory.max", "8589934592", "pids.max", "500", "hugetlb.2MB.max", "0")
	expect(t, h.mount+"/kubepods/burstable",
		"cpu.weight", "20", "hugetlb.2MB.max", "4611686018427387904")
	expect(t, h.mount+"/kubepods/besteffort", "cpu.weight", "1")
	expect(t, h.mount+"/kubepods/burstable/podb1", "cpu.weight", "20", "cpu.max", "100000 100000",
		"pids.max", "64", "hugetlb.2MB.max", "4194304")
	expectReserved(t, tree, burstable, h.mount+"/kubepods/burstable/podb1", "hugetlb.2MB.rsvd.max",
		"4194304")
	if exists(h.mount + "/kubepods/burstable/podb1/memory.max") {
		t.Error("a pod without memory limit got one")
	}
	if err := madePod(ctx, tree, burstable, PodOptions{NoQuota: true}); err != nil {
		t.Fatal(err)
	}
	expect(t, h.mount+"/kubepods/burstable/podb1", "cpu.max", "max 100000")

	// Another run of the agent does not know the pods yet.
	if err := tree.EnsureNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	expect(t, h.mount+"/kubepods/burstable", "cpu.weight", "20")

	if got := orphans(t, tree); got != "b1" {
		t.Errorf("Orphans() = %s", got)
	}
	for range 2 {
		if err := tree.RemovePod(ctx, "b1"); err != nil {
			t.Fatal(err)
		}
	}
	if exists(h.mount + "/kubepods/burstable/podb1") {
		t.Error("pod cgroup is still there")
	}
}

func orphans(t *testing.T, tree *Tree, live ...string) string {
	t.Helper()
	uids, err := tree.Orphans(func(uid types.UID) bool {
		for _, l := range live {
			if types.UID(l) == uid {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, uid := range uids {
		text = append(text, string(uid))
	}
	return strings.Join(text, " ")
}

func TestUnifiedWithoutOptionalControllers(t *testing.T) {
	h := newHost(t).unified("cpuset cpu memory", "/kubepods", "/kubepods/burstable")
	tree := h.tree(Config{})
	if err := tree.EnsureNode(t.Context(), Resources{Shares: 1024, Pids: 5}); err != nil {
		t.Fatal(err)
	}
	expect(t, h.mount+"/kubepods", "cpu.weight", "39")
	for _, file := range []string{"pids.max", "hugetlb.2MB.max"} {
		if exists(filepath.Join(h.mount, "kubepods", file)) {
			t.Errorf("%s is written without its controller", file)
		}
	}
}

func TestLegacy(t *testing.T) {
	rewritable(t)
	ctx := t.Context()
	h := newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "systemd",
		"unified")
	for file, text := range map[string]string{"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"} {
		if err := os.WriteFile(h.mount+"/cpuset/"+file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := h.tree(Config{})
	node := NodeResources(list("cpu=4 memory=8Gi"), 500)
	if err := tree.EnsureNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := madePod(ctx, tree, testPod("g1", "cpu=1 memory=64Mi"), PodOptions{Pids: 64}); err != nil {
		t.Fatal(err)
	}
	expect(t, h.mount+"/cpu/kubepods/podg1",
		"cpu.shares", "1024", "cpu.cfs_quota_us", "100000", "cpu.cfs_period_us", "100000")
	expect(t, h.mount+"/memory/kubepods/podg1", "memory.limit_in_bytes", "67108864")
	expect(t, h.mount+"/pids/kubepods/podg1", "pids.max", "64")
	expect(t, h.mount+"/hugetlb/kubepods/podg1", "hugetlb.2MB.limit_in_bytes", "0")
	expect(t, h.mount+"/hugetlb/kubepods/burstable",
		"hugetlb.2MB.limit_in_bytes", "4611686018427387904")
	expectReserved(t, tree, testPod("g1", "cpu=1 memory=64Mi"), h.mount+"/hugetlb/kubepods/podg1",
		"hugetlb.2MB.rsvd.limit_in_bytes", "0")
	for _, hierarchy := range []string{"systemd", "unified"} {
		if !exists(h.mount + "/" + hierarchy + "/kubepods/podg1") {
			t.Errorf("no pod cgroup in hierarchy %s, which has no values", hierarchy)
		}
	}
	if exists(h.mount + "/freezer") {
		t.Error("a folder was made for a controller that is not mounted")
	}
}

func TestNewErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		host host
		conf Config
		want []string
	}{
		{"v1 without memory", newHost(t).legacy("cpu", "cpuacct", "cpuset"), Config{},
			[]string{"controller memory is not mounted at", "cgroup/memory: mount it"}},
		{"v2 without cpuset", newHost(t).unified("cpu memory pids"), Config{},
			[]string{"controller cpuset is not in", "cgroup.controllers", "enable it"}},
		{"v1 root", newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory"), Config{Root: "/pods"},
			[]string{`cgroup root "/pods"`, "/pods does not exist", "change cgroupRoot"}},
		{"v2 root", newHost(t).unified(allControllers), Config{Root: "/pods"},
			[]string{`cgroup root "/pods"`, "/pods does not exist", "change cgroupRoot"}},
		{"driver", newHost(t).unified(allControllers), Config{Driver: "systemD"},
			[]string{`cgroup driver "systemD"`, "cgroupfs", "systemd"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.host.config(tc.conf))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestHugePageSizes(t *testing.T) {
	h := newHost(t)
	h.mkdir(h.hugePages + "/hugepages-1048576kB")
	sizes, err := hugePageSizes(h.hugePages)
	if err != nil || len(sizes) != 2 || sizes[0] != 2*mi || sizes[1] != gi {
		t.Errorf("hugePageSizes() = %d, %v", sizes, err)
	}
	if sizes, err := hugePageSizes(h.hugePages + "/none"); len(sizes) != 0 || err != nil {
		t.Errorf("hugePageSizes of no folder = %d, %v", sizes, err)
	}
	h.mkdir(h.hugePages + "/other")
	if _, err := hugePageSizes(h.hugePages); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("hugePageSizes with another entry: %v", err)
	}
}

func TestSteady(t *testing.T) {
	dir := t.TempDir()
	walks := 0
	walk := func() (int, error) {
		if walks++; walks < 3 {
			return 1, &os.PathError{Op: "lstat", Path: dir + "/gone", Err: os.ErrNotExist}
		}
		return 7, nil
	}
	if n, err := steady(dir, walk); n != 7 || err != nil || walks != 3 {
		t.Errorf("steady = %d, %v after %d walks", n, err, walks)
	}
	walks = 0
	if n, err := steady(dir+"/none", walk); n != 0 || err != nil || walks != 1 {
		t.Errorf("steady without the folder = %d, %v after %d walks", n, err, walks)
	}
	denied := errors.New("denied")
	if _, err := steady(dir, func() (int, error) { return 0, denied }); err != denied {
		t.Errorf("steady hides %v", err)
	}
}
