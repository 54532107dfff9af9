package cgroups

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	oci "github.com/opencontainers/cgroups"
)

// Home is a cgroup of this machine for processes that are no pods': the agent, the runtime, the
// system's daemons. Its name is a path in every hierarchy, whatever the cgroup driver is.
type Home struct {
	path   string
	kernel hierarchy
	mount  string
	proc   string
}

// OpenHome returns the home of that name. It makes nothing yet. mount and proc are the mount points
// of cgroups and of /proc; "": the usual ones.
func OpenHome(name, mount, proc string) (*Home, error) {
	mount, proc = cmp.Or(mount, defaultMount), cmp.Or(proc, "/proc")
	at := path.Clean("/" + name)
	if at == "/" || strings.Contains(name, "..") {
		return nil, fmt.Errorf("cgroup %q: must be a path below /, such as /system", name)
	}
	kernel, err := openHierarchy(mount, "/")
	if err != nil {
		return nil, err
	}
	return &Home{at, kernel, mount, proc}, nil
}

// Path returns the home's path below the mount point of each hierarchy.
func (h *Home) Path() string { return h.path }

// Take moves a process into the home, which it makes. A process that is in the home or in a cgroup
// below it stays where it is; moved is false then, and if the process is gone.
func (h *Home) Take(pid int) (moved bool, err error) {
	in, err := h.holds(pid)
	if err == nil && !in {
		err = h.kernel.apply(h.path, Resources{})
	}
	if err == nil && !in {
		err = h.kernel.add(h.path, pid)
	}
	switch {
	case in || errors.Is(err, fs.ErrNotExist) || gone(h.proc, pid):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("move process %d into cgroup %s: %w", pid, h.path, err)
	default:
		return true, nil
	}
}

func gone(proc string, pid int) bool { return !exists(filepath.Join(proc, strconv.Itoa(pid))) }

// holds reports whether the process is in the home or below it, in the hierarchies that count what
// processes use: those with the CPU and the memory controller, or cgroup v2, which is named "".
func (h *Home) holds(pid int) (in bool, err error) {
	paths, err := oci.ParseCgroupFile(filepath.Join(h.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false, err
	}
	counting := []string{"cpu", "memory"}
	if _, v2 := h.kernel.(*unified); v2 {
		counting = []string{""}
	}
	for _, controller := range counting {
		at, ok := paths[controller]
		if ok && at != h.path && !strings.HasPrefix(at, h.path+"/") {
			return false, nil
		}
		in = in || ok
	}
	return in, nil
}

// Strays returns the processes at the top of the hierarchy that belong into a home: all but the
// first process of the machine and the kernel's threads, which serve every cgroup.
func (h *Home) Strays() ([]int, error) {
	dir := h.mount
	if _, v2 := h.kernel.(*unified); !v2 {
		dir = filepath.Join(dir, "memory")
	}
	pids, err := oci.GetPids(dir)
	if err != nil {
		return nil, fmt.Errorf("list processes of the top cgroup: %w", err)
	}
	var out []int
	for _, pid := range pids {
		if pid <= 1 { // 0 is a process of another PID namespace
			continue
		}
		_, err := os.Readlink(filepath.Join(h.proc, strconv.Itoa(pid), "exe"))
		if !errors.Is(err, fs.ErrNotExist) { // threads of the kernel have no program
			out = append(out, pid)
		}
	}
	return out, nil
}

func (l *legacy) add(path string, pid int) error {
	for _, s := range l.subsystems {
		dir := filepath.Join(l.mount, string(s.Name()), path)
		if err := oci.WriteCgroupProc(dir, pid); err != nil {
			return err
		}
	}
	return nil
}

func (u *unified) add(path string, pid int) error {
	return oci.WriteCgroupProc(filepath.Join(u.mount, path), pid)
}
