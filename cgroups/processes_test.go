package cgroups

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestHomeTakes: a process is moved into a home, which is made for it, in every hierarchy of this
// machine; one that is there or below stays, and one that has ended is no failure.
func TestHomeTakes(t *testing.T) {
	root, _ := ownRoot(t)
	home, err := OpenHome(strings.TrimPrefix(root, "/")+"/home/", "", "")
	if err != nil {
		t.Fatal(err)
	}
	above, err := OpenHome(root, "", "")
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "600")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	pid := process.Process.Pid
	take := func(h *Home, want bool) {
		t.Helper()
		moved, err := h.Take(pid)
		if err != nil || moved != want {
			t.Errorf("Take() = %t, %v, want %t", moved, err, want)
		}
	}
	take(home, true)
	take(home, false)
	take(above, false)
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		hierarchy, at, _ := strings.Cut(strings.TrimSpace(line)[2:], ":")
		if strings.Contains(line, ":cpu") || strings.Contains(line, ":memory") {
			if at != root+"/home" {
				t.Errorf("hierarchy %s: the process is in %s", hierarchy, at)
			}
		}
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // it was killed
	take(home, false)
	for _, bad := range []string{"", "/", "a/../b"} {
		if _, err := OpenHome(bad, "", ""); err == nil {
			t.Errorf("OpenHome takes %q", bad)
		}
	}
}

// TestStrays: neither threads of the kernel nor the first process leave the top of the hierarchy.
func TestStrays(t *testing.T) {
	for name, h := range map[string]host{
		"":       newHost(t).unified(allControllers),
		"memory": newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory"),
	} {
		proc := t.TempDir()
		for _, pid := range []string{"1", "7", "12"} {
			h.mkdir(filepath.Join(proc, pid))
			if err := os.Symlink("/bin/program", filepath.Join(proc, pid, "exe")); err != nil {
				t.Fatal(err)
			}
		}
		h.mkdir(filepath.Join(proc, "8")) // a thread of the kernel
		procs := filepath.Join(h.mount, name, "cgroup.procs")
		if err := os.WriteFile(procs, []byte("0\n1\n7\n8\n9\n12\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		home, err := OpenHome("/system", h.mount, proc)
		if err != nil {
			t.Fatal(err)
		}
		got, err := home.Strays()
		if err != nil || !slices.Equal(got, []int{7, 12}) {
			t.Errorf("%q: Strays() = %v, %v", name, got, err)
		}
	}
}
