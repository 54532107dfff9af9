package held

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
)

// pods has one pod, whose process is this one: in a cgroup inside of the pod's.
func pods(t *testing.T, processes string) Pods {
	t.Helper()
	mount := t.TempDir()
	dir := filepath.Join(mount, "memory", "pods", "a", "main", "inner")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(processes), 0o600); err != nil {
		t.Fatal(err)
	}
	return Pods{Groups: kernel.NewGroups(mount), Paths: func(types.UID) (cgroups.PodPaths, error) {
		return cgroups.PodPaths{Pod: "/pods/a"}, nil
	}}
}

// deleted makes a file of 1 MiB that is deleted.
func deleted(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(dir, "held-")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestHeld: deleted files count that a process holds, in whatever way, each once.
func TestHeld(t *testing.T) {
	p, dir := pods(t, fmt.Sprintln(os.Getpid())), t.TempDir()
	last := p.Held(t.Context(), "a", dir)
	more := func(what string, files uint64) {
		t.Helper()
		now := p.Held(t.Context(), "a", dir)
		if now.On.Inodes != last.On.Inodes+files || now.On.Bytes < last.On.Bytes+files<<20 || now.Partial {
			t.Errorf("%s: before it is %+v, and then %+v; want %d files more", what, last, now, files)
		}
		last = now
	}
	here := deleted(t, dir)
	defer here.Close()
	more("a descriptor", 1)
	again, err := unix.Dup(int(here.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	more("another of the same file", 0)
	mapped := deleted(t, dir)
	memory, err := unix.Mmap(int(mapped.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	mapped.Close()
	more("mapped, without a descriptor", 1)
	if err := unix.Munmap(memory); err != nil {
		t.Fatal(err)
	}
	if last = p.Held(t.Context(), "a", dir); last.On.Inodes == 0 {
		t.Errorf("after the memory was unmapped it is %+v", last)
	}
	there, done, ended := make(chan error), make(chan struct{}), make(chan struct{})
	copied := int(here.Fd())
	go func() { // its thread ends with it, or is parked, and must not hold what it has copied
		defer close(ended)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			there <- err
			return
		}
		f := deleted(t, dir)
		there <- nil
		<-done
		f.Close()
		unix.Close(copied)
		unix.Close(again)
	}()
	if err := <-there; err != nil {
		t.Skip(err)
	}
	more("a descriptor of one thread", 1)
	close(done)
	<-ended
	other := deleted(t, dir)
	defer other.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := p.Held(ctx, "a", dir); !got.Partial {
		t.Errorf("without time it is %+v", got)
	}
}

// TestHeldElsewhere: what is deleted on the filesystem of the root counts for layers, and on any other
// not at all.
func TestHeldElsewhere(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "held-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(memory) })
	p, dir := pods(t, fmt.Sprintln(os.Getpid())), t.TempDir()
	of := func(path string) uint64 {
		s, err := stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return deviceOf(&s)
	}
	if of(memory) == of(dir) || of("/") != of(dir) {
		t.Skip("temporary files are not on the filesystem of the root")
	}
	before := p.Held(t.Context(), "a", memory)
	f := deleted(t, dir)
	defer f.Close()
	if got := p.Held(t.Context(), "a", memory); got.Layers.Inodes != before.Layers.Inodes+1 ||
		got.On != before.On {
		t.Errorf("on the root: before it is %+v, and then %+v", before, got)
	}
	before = p.Held(t.Context(), "a", dir)
	g := deleted(t, memory)
	defer g.Close()
	if got := p.Held(t.Context(), "a", dir); got != before {
		t.Errorf("in memory: before it is %+v, and then %+v", before, got)
	}
}

// TestManyProcesses: of a pod with more processes than are looked at, not all is known.
func TestManyProcesses(t *testing.T) {
	all := ""
	for i := range maxProcesses + 1 {
		all += fmt.Sprintln(1<<30 + i)
	}
	if got := pods(t, all).Held(t.Context(), "a", t.TempDir()); !got.Partial {
		t.Errorf("it is %+v", got)
	}
}

// TestWrote: what processes wrote grows, and does not shrink when some end.
func TestWrote(t *testing.T) {
	w, before := Wrote{processes: 5, group: 100}, Wrote{processes: 7, group: 90}
	if got := w.Since(before); got != 10 {
		t.Errorf("it wrote %d since; want 10", got)
	}
	proc := t.TempDir()
	for pid, n := range map[string]int{"1": 4096, "2": 8192} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: %d\n"+
			"cancelled_write_bytes: 7\n", n)
		if err := os.WriteFile(filepath.Join(proc, pid, "io"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := pods(t, "1\n2\n3\n")
	p.Proc = proc
	if got := p.Wrote("a"); got.processes != 4096+8192 {
		t.Errorf("it wrote %+v", got)
	}
}
