package wake

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/test/scratch"
)

// listen runs a Kernel until the test ends.
func listen(t *testing.T, c Config) *Kernel {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := New(c)
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	for k.hears() == 0 {
		time.Sleep(time.Millisecond) // it opens its sources
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := k.hears(); n > 0 {
			t.Errorf("%d left open", n)
		}
	})
	return k
}

// hears counts the descriptors.
func (k *Kernel) hears() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.sources)
}

// ownGroup makes a cgroup for memory, and returns its path and its folder.
func ownGroup(t *testing.T) (group, dir string, unified bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups on this machine")
	}
	group = scratch.Cgroup("wake")
	if err := cgroups.CreateRoot(group); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := cgroups.DeleteRoot(context.Background(), group); err != nil {
			t.Error(err)
		}
	})
	if dir = filepath.Join("/sys/fs/cgroup/memory", group); exists(dir) {
		return group, dir, false
	}
	return group, filepath.Join("/sys/fs/cgroup", group), true
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hog runs a process in the cgroup until the test ends or the kernel ends it. It takes so many MiB of
// memory, and files: it writes a file of as many and reads it over and over.
func hog(t *testing.T, dir string, mib int, files bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hogs+"="+dir, "MIB="+strconv.Itoa(mib))
	if files {
		cmd.Env = append(cmd.Env, "FILE="+filepath.Join(t.TempDir(), "file"))
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()         // killed
	})
}

const hogs = "NUMALET_HOG"

// TestMain is the tests, or the process of hog.
func TestMain(m *testing.M) {
	dir := os.Getenv(hogs)
	if dir == "" {
		os.Exit(m.Run())
	}
	mib, err := strconv.Atoi(os.Getenv("MIB"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	}
	if err != nil {
		panic(err)
	}
	file := os.Getenv("FILE")
	if file == "" {
		memory := make([]byte, mib<<20)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		time.Sleep(time.Hour)
	}
	if err := os.WriteFile(file, make([]byte, mib<<20), 0o600); err != nil {
		panic(err)
	}
	for {
		if f, err := os.Open(file); err == nil {
			_, _ = io.Copy(io.Discard, f)
			f.Close()
		}
	}
}

// woken waits for a wake.
func woken(t *testing.T, k *Kernel) {
	t.Helper()
	select {
	case <-k.Woken():
	case <-time.After(time.Minute):
		t.Fatal("nothing woke")
	}
}

// TestLevel: on cgroup v1 the kernel wakes when a level is crossed, and a level that cannot be set is
// no level.
func TestLevel(t *testing.T) {
	group, dir, unified := ownGroup(t)
	if unified {
		t.Skip("cgroup v2 has no levels")
	}
	k := listen(t, Config{Levels: true, Proc: t.TempDir()})
	k.Arm(t.Context(), "/none/such", 1<<20)
	if l := k.armed["/none/such"]; !l.failed {
		t.Errorf("a cgroup that is not there is armed: %+v", l)
	}
	k.Arm(t.Context(), group, 0) // it is short already
	k.Arm(t.Context(), group, 16<<20)
	first := k.armed[group]
	if first.failed {
		t.Fatal("the cgroup is not armed")
	}
	k.Arm(t.Context(), group, 8<<20)
	if k.armed[group] != first {
		t.Error("within the refresh it was armed anew")
	}
	hog(t, dir, 64, false)
	woken(t, k)
}

// TestNotAsked: without the setting nothing is armed.
func TestNotAsked(t *testing.T) {
	k := listen(t, Config{Proc: t.TempDir()})
	k.Arm(t.Context(), "/", 1<<20)
	if len(k.armed) > 0 {
		t.Errorf("armed: %v", k.armed)
	}
}

// TestLimit: on cgroup v2 the kernel wakes when the cgroup of all pods reaches its limit, again and
// again, and its end ends nothing else.
func TestLimit(t *testing.T) {
	group, dir, unified := ownGroup(t)
	if !unified {
		t.Skip("cgroup v1 has levels")
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte("33554432"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "hog")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	k := listen(t, Config{Unified: true, Pods: group, Proc: t.TempDir()})
	for range 2 {
		hog(t, inside, 256, false)
		woken(t, k)
	}
}

// TestStall: the kernel wakes when processes wait for memory.
func TestStall(t *testing.T) {
	if !exists("/proc/pressure/memory") {
		t.Skip("the kernel has no pressure stall information")
	}
	_, dir, unified := ownGroup(t)
	limit := "memory.limit_in_bytes"
	if unified {
		limit = "memory.max"
	}
	if err := os.WriteFile(filepath.Join(dir, limit), []byte("33554432"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := listen(t, Config{Unified: unified})
	for range 4 {
		hog(t, dir, 100, true) // of its own: what somebody else has read counts for that one
	}
	woken(t, k)
}

// TestNothing: a kernel without any of it wakes nobody, and that is no error.
func TestNothing(t *testing.T) {
	k := listen(t, Config{Proc: t.TempDir(), Cgroups: t.TempDir(), Unified: true, Pods: "/kubepods"})
	if n := k.hears(); n != 1 { // how it is stopped
		t.Errorf("listening to %d", n)
	}
}
