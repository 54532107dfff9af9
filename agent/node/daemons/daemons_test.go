package daemons

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/test/scratch"
)

// TestNothingNamed: without names nothing is looked at.
func TestNothingNamed(t *testing.T) {
	if d, err := New(Names{}, "unix:///x"); d != nil || err != nil {
		t.Errorf("New() = %v, %v", d, err)
	}
	if _, err := New(Names{System: "/"}, ""); err == nil {
		t.Error("the top of the hierarchy is taken")
	}
}

// TestListener: the process behind the runtime's socket is the one that listens there.
func TestListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := listener("unix://" + path); err != nil || pid != os.Getpid() {
		t.Errorf("listener() = %d, %v, want %d", pid, err, os.Getpid())
	}
	l.Close()
	if _, err := listener("unix://" + path); err == nil {
		t.Error("a socket without a listener has one")
	}
}

// TestLook: the runtime is moved, and so is the one that takes its place. A runtime that is away is
// named.
func TestLook(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups on this machine")
	}
	root := scratch.Cgroup("daemons")
	if err := cgroups.CreateRoot(root); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := cgroups.DeleteRoot(context.Background(), root); err != nil {
			t.Error(err)
		}
	})
	d, err := New(Names{Runtime: root + "/runtime"}, "unix:///nonexistent")
	if err != nil {
		t.Fatal(err)
	}
	away := d.runs
	for range 2 {
		runtime := exec.Command("sleep", "600")
		if err := runtime.Start(); err != nil {
			t.Fatal(err)
		}
		d.runs = func() (int, error) { return runtime.Process.Pid, nil }
		for range 2 {
			if err := d.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join("/proc", strconv.Itoa(runtime.Process.Pid), "cgroup")
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), ":"+root+"/runtime\n") {
			t.Errorf("the runtime is in\n%s, %v", text, err)
		}
		if err := runtime.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = runtime.Wait() // it was killed
	}
	d.runs = away
	err = d.Look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "container runtime") {
		t.Errorf("without the runtime: %v", err)
	}
}

// TestBeside: the first process of a PID namespace and one in another stay where they are: these are in
// containers.
func TestBeside(t *testing.T) {
	if !beside(os.Getpid()) || beside(1) {
		t.Errorf("this process is beside the agent: %t; the first one: %t", beside(os.Getpid()), beside(1))
	}
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := other.Start(); err != nil {
		t.Skipf("no PID namespace can be made here: %v", err)
	}
	if beside(other.Process.Pid) {
		t.Error("a process in another PID namespace is beside the agent")
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
}
