package cgroups

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/scratch"
)

// ownRoot makes the test's own cgroup root on this machine and removes it afterwards. It returns
// its path below each hierarchy and its directories.
func ownRoot(t *testing.T) (string, []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups on this machine")
	}
	root := scratch.Cgroup("tree")
	if err := CreateRoot(root); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	find := func() []string {
		v1, err1 := filepath.Glob(defaultMount + "/*" + root)
		v2, err2 := filepath.Glob(defaultMount + root)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return append(v1, v2...)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := DeleteRoot(context.Background(), root); err != nil {
				t.Error(err)
			}
		}
		if left := find(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	dirs := find()
	if len(dirs) == 0 {
		t.Fatal("CreateRoot made nothing")
	}
	return root, dirs
}

// TestHost makes, changes and removes the tree on the kernel of this machine.
func TestHost(t *testing.T) {
	root, dirs := ownRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tree, err := New(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	node := NodeResources(list("cpu=2 memory=1Gi"), 1000)
	if err := tree.EnsureNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	pod := testPod("aa-11", "cpu=500m memory=64Mi")
	burstable := testPod("bb-22", "cpu=250m..")
	for range 2 {
		for _, p := range []*v1.Pod{pod, burstable} {
			if err := madePod(ctx, tree, p, PodOptions{Pids: 64}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tree.UpdateQOS(ctx, []*v1.Pod{pod, burstable}, Reserve{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := tree.kernel.(*legacy); ok {
		expectLegacyHost(t, root)
	} else {
		expectUnifiedHost(t, dirs[0])
	}
	if got := orphans(t, tree, "bb-22"); got != "aa-11" {
		t.Errorf("Orphans() = %s", got)
	}

	exited := startIn(t, dirs, "/kubepods/podaa-11/container")
	for range 2 {
		if err := tree.RemovePod(ctx, pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	<-exited
	for _, dir := range dirs {
		if exists(dir + "/kubepods/podaa-11") {
			t.Errorf("%s/kubepods/podaa-11 is still there", dir)
		}
	}
	if got := orphans(t, tree); got != "bb-22" {
		t.Errorf("Orphans() = %s", got)
	}
	if err := tree.RemovePod(ctx, burstable.UID); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteRoot: processes in a root are killed with it, and the machine's top is never a root.
func TestDeleteRoot(t *testing.T) {
	root, dirs := ownRoot(t)
	exited := startIn(t, dirs, "/some")
	if err := DeleteRoot(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	<-exited
	for _, bad := range []string{"", "/", "x", "/x/..", "/x/"} {
		if err := DeleteRoot(t.Context(), bad); err == nil {
			t.Errorf("DeleteRoot takes %q", bad)
		}
	}
}

// TestUnifiedKill kills and removes in the v2 hierarchy of this machine, which may have no
// controllers.
func TestUnifiedKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups on this machine")
	}
	mount := defaultMount
	if !isUnified(mount) {
		mount += "/unified"
	}
	if !isUnified(mount) {
		t.Skip("no cgroup v2 on this machine")
	}
	u := &unified{mount: mount}
	tree := &Tree{writer: writer{driver: Cgroupfs, kernel: u}}
	root := scratch.Cgroup("kill")
	for _, path := range []string{root, root + "/container"} {
		if err := u.apply(path, Resources{}); err != nil {
			t.Skipf("cgroups cannot be made here: %v", err)
		}
	}
	exited := startIn(t, []string{mount + root}, "/container")
	for range 2 {
		if err := tree.killAll(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		if err := u.remove(root); err != nil {
			t.Fatal(err)
		}
	}
	<-exited
	if exists(mount + root) {
		t.Errorf("%s is left", mount+root)
	}
}

func expectLegacyHost(t *testing.T, root string) {
	t.Helper()
	kubepods := func(controller string) string {
		return filepath.Join(defaultMount, controller, root, "kubepods")
	}
	expect(t, kubepods("cpu"), "cpu.shares", "2048", "cpu.cfs_quota_us", "-1")
	expect(t, kubepods("cpu")+"/burstable", "cpu.shares", "256")
	expect(t, kubepods("cpu")+"/besteffort", "cpu.shares", "2")
	expect(t, kubepods("cpu")+"/podaa-11",
		"cpu.shares", "512", "cpu.cfs_quota_us", "50000", "cpu.cfs_period_us", "100000")
	expect(t, kubepods("cpu")+"/burstable/podbb-22", "cpu.shares", "256", "cpu.cfs_quota_us", "-1")
	expect(t, kubepods("memory"), "memory.limit_in_bytes", "1073741824")
	expect(t, kubepods("memory")+"/podaa-11", "memory.limit_in_bytes", "67108864")
	if exists(defaultMount + "/pids") {
		expect(t, kubepods("pids"), "pids.max", "1000")
		expect(t, kubepods("pids")+"/podaa-11", "pids.max", "64")
	}
}

func expectUnifiedHost(t *testing.T, dir string) {
	t.Helper()
	expect(t, dir+"/kubepods", "cpu.weight", "79", "memory.max", "1073741824")
	expect(t, dir+"/kubepods/burstable", "cpu.weight", "10")
	expect(t, dir+"/kubepods/podaa-11", "cpu.weight", "20", "cpu.max", "50000 100000",
		"memory.max", "67108864")
}

// startIn starts a process in a cgroup below a pod's, as a runtime does. The channel closes when
// the process has exited.
func startIn(t *testing.T, dirs []string, cgroup string) <-chan struct{} {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	for _, root := range dirs {
		dir := root + cgroup
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			// Cgroup v1 requires CPUs. In v2 there may be no file for them.
			text, err := os.ReadFile(filepath.Dir(dir) + "/" + file)
			if err == nil && exists(dir+"/"+file) {
				if err := os.WriteFile(dir+"/"+file, text, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		pid := []byte(strconv.Itoa(cmd.Process.Pid))
		if err := os.WriteFile(dir+"/cgroup.procs", pid, 0); err != nil {
			t.Fatal(err)
		}
	}
	return exited
}

func TestRemoveRefusesOwnCgroup(t *testing.T) {
	if err := killable(map[int]bool{os.Getpid(): true}); err == nil {
		t.Error("the agent would kill itself")
	}
	if err := killable(map[int]bool{0: true}); err == nil {
		t.Error("the agent would kill its process group")
	}
}
