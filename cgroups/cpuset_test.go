package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// write makes a cgroup with these CPUs.
func (h host) write(dir, cpus string) {
	h.t.Helper()
	h.mkdir(filepath.Join(h.mount, dir))
	file := filepath.Join(h.mount, dir, allowedCPUs)
	if err := os.WriteFile(file, []byte(cpus+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// treeOf returns a tree on the host with the driver's names, which does not talk to systemd.
func (h host) treeOf(driver Driver) *Tree {
	h.t.Helper()
	kernel, err := openHierarchy(h.mount, "/")
	if err != nil {
		h.t.Fatal(err)
	}
	return &Tree{writer: writer{driver: driver, kernel: kernel}}
}

// Each runtime names a container's cgroup differently.
func TestFindContainer(t *testing.T) {
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"
	for _, c := range []struct {
		driver Driver
		dir    string
	}{
		{Cgroupfs, "/kubepods/poda-b/c0ffee"},
		{Cgroupfs, "/kubepods/besteffort/poda-b/crio-c0ffee"},
		{Systemd, slice + "/cri-containerd-c0ffee.scope"},
		{Systemd, slice + "/crio-c0ffee.scope"},
	} {
		for version, at := range map[string]string{"v1": "/cpuset", "v2": ""} {
			t.Run(version+c.dir, func(t *testing.T) {
				h := newHost(t)
				if version == "v1" {
					h = h.legacy("cpu", "cpuacct", "cpuset", "memory")
				} else {
					h = h.unified(allControllers)
				}
				h.write(at+filepath.Dir(c.dir)+"/crio-conmon-c0ffee.scope", "7")
				h.write(at+filepath.Dir(c.dir)+"/0ther", "7")
				h.write(at+c.dir, "2-3")
				tree := h.treeOf(c.driver)
				found, err := tree.FindContainer("a-b", "c0ffee")
				if err != nil {
					t.Fatal(err)
				}
				if got, err := found.CPUs(); got != "2-3" || err != nil {
					t.Errorf("CPUs() = %q, %v", got, err)
				}
				h.file(at+c.dir+"/cpuset.mems", "0,2")
				if got, err := found.Mems(); got != "0,2" || err != nil {
					t.Errorf("Mems() = %q, %v", got, err)
				}
				if err := os.RemoveAll(filepath.Join(h.mount, at+c.dir)); err != nil {
					t.Fatal(err)
				}
				if _, err := found.CPUs(); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a cgroup that is gone: %v", err)
				}
				for _, uid := range []types.UID{"a-b", "other", "", "../a-b"} {
					if got, err := tree.FindContainer(uid, "c0ffee"); err == nil {
						t.Errorf("pod %q has %v", uid, got)
					}
				}
			})
		}
	}
}

// On cgroup v1 a CPU that was offline is missing wherever the kernel removed it.
func TestWidenCPUs(t *testing.T) {
	h := newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory")
	h.write("/cpuset", "0-3")
	h.file("/cpuset/cpuset.mems", "0-1")
	widened := []string{
		"/kubepods", "/kubepods/podg", "/kubepods/burstable", "/kubepods/burstable/podb",
		"/kubepods/besteffort", "/kubepods/besteffort/pode",
	}
	for _, dir := range widened {
		h.write("/cpuset"+dir, "0-2")
		h.file("/cpuset"+dir+"/cpuset.mems", "0")
	}
	left := []string{"/kubepods/podg/c0ffee", "/kubepods/foreign", "/other"}
	for _, dir := range left {
		h.write("/cpuset"+dir, "0-1")
		h.file("/cpuset"+dir+"/cpuset.mems", "0")
	}
	tree := h.treeOf(Cgroupfs)
	for range 2 {
		if err := tree.WidenCPUs(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range widened {
			expect(t, h.mount+"/cpuset"+dir, allowedCPUs, "0-3", allowedMems, "0")
		}
		for _, dir := range left {
			expect(t, h.mount+"/cpuset"+dir, allowedCPUs, "0-1")
		}
	}
	if err := tree.WidenMems(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range widened {
		expect(t, h.mount+"/cpuset"+dir, allowedMems, "0-1")
	}
	for _, dir := range left {
		expect(t, h.mount+"/cpuset"+dir, allowedMems, "0")
	}
	// A group that already has them is not written.
	file := filepath.Join(h.mount, "cpuset/kubepods", allowedCPUs)
	old := time.Unix(1000, 0)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if err := tree.WidenCPUs(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("written again: %v, %v", info, err)
	}

	unified := newHost(t).unified(allControllers)
	unified.write("/kubepods", "0-2")
	if err := unified.treeOf(Cgroupfs).WidenCPUs(); err != nil {
		t.Fatal(err)
	}
	expect(t, unified.mount+"/kubepods", allowedCPUs, "0-2")
}

// TestWidenCPUsOnHost writes the values on the kernel of this machine.
func TestWidenCPUsOnHost(t *testing.T) {
	root, _ := ownRoot(t)
	tree, err := New(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tree.kernel.(*legacy); !ok {
		t.Skip("cgroup v2: nothing is widened")
	}
	pod := testPod("aa-11", "")
	if err := errors.Join(tree.EnsureNode(t.Context(), Resources{}),
		madePod(t.Context(), tree, pod, PodOptions{})); err != nil {
		t.Fatal(err)
	}
	all, err := readSet(tree.dir("cpuset", tree.root).path, allowedCPUs)
	if err != nil || all == "0" {
		t.Skipf("needs two CPUs: has %q, %v", all, err)
	}
	parent := tree.dir("cpuset", tree.root.child(kubepods)).path
	group := tree.dir("cpuset", podGroup(tree.root, podspec.QOSClass(pod), pod.UID)).path
	burstable := tree.dir("cpuset", qosGroup(tree.root, v1.PodQOSBurstable)).path
	for _, dir := range []string{group, filepath.Dir(group), burstable, parent} {
		if err := os.WriteFile(filepath.Join(dir, allowedCPUs), []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.WidenCPUs(); err != nil {
		t.Fatal(err)
	}
	expect(t, group, allowedCPUs, all)
	expect(t, burstable, allowedCPUs, all)
	expect(t, parent, allowedCPUs, all)
	if err := tree.RemovePod(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkReadCPUs measures one read of a container's set.
func BenchmarkReadCPUs(b *testing.B) {
	const host = "/sys/fs/cgroup/cpuset"
	if !exists(host) {
		b.Skip("no cgroup v1 cpuset on this machine")
	}
	for b.Loop() {
		if _, err := (Container{cpuset: directory{path: host}}).CPUs(); err != nil {
			b.Fatal(err)
		}
	}
}
