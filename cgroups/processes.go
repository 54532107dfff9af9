package cgroups

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
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

// holds reports whether the process is in the home or below it, in the hierarchies with the CPU and
// the memory controller (cgroups(7), /proc/PID/cgroup).
func (h *Home) holds(pid int) (bool, error) {
	file, err := os.Open(filepath.Join(h.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	_, v2 := h.kernel.(*unified)
	seen := 0
	for lines := bufio.NewScanner(file); lines.Scan(); { // "4:memory:/a", "0::/a" for cgroup v2
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 || !counts(parts[1], v2) {
			continue
		}
		if at := parts[2]; at != h.path && !strings.HasPrefix(at, h.path+"/") {
			return false, nil
		}
		seen++
	}
	return seen > 0, nil
}

// counts reports whether a hierarchy with these controllers counts what its processes use.
func counts(controllers string, v2 bool) bool {
	if v2 {
		return controllers == ""
	}
	for name := range strings.SplitSeq(controllers, ",") {
		if name == "cpu" || name == "memory" {
			return true
		}
	}
	return false
}

// Strays returns the processes at the top of the hierarchy that belong into a home: all but the
// first process of the machine and the kernel's threads, which serve every cgroup.
func (h *Home) Strays() ([]int, error) {
	dir := h.mount
	if _, v2 := h.kernel.(*unified); !v2 {
		dir = filepath.Join(dir, "memory")
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("list processes of the top cgroup: %w", err)
	}
	var out []int
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 1 { // 0 is a process of another PID namespace
			continue
		}
		_, err = os.Readlink(filepath.Join(h.proc, field, "exe"))
		if !errors.Is(err, fs.ErrNotExist) { // threads of the kernel have no program
			out = append(out, pid)
		}
	}
	return out, nil
}

func (l *legacy) add(path string, pid int) error {
	for _, s := range l.subsystems {
		dir := filepath.Join(l.mount, string(s.Name()), path)
		if err := writeExisting(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

func (u *unified) add(path string, pid int) error {
	return writeExisting(filepath.Join(u.mount, path), "cgroup.procs", strconv.Itoa(pid))
}
