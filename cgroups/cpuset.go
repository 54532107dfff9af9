package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	oci "github.com/opencontainers/cgroups"
	"k8s.io/apimachinery/pkg/types"
)

// allowedCPUs and allowedMems hold the CPUs and memory nodes that a cgroup was given; both versions
// use these names. The kernel may let its processes use fewer, or others if none of them is online
// (cgroup v2: cpuset.cpus.effective, cpuset.mems.effective).
const (
	allowedCPUs = "cpuset.cpus"
	allowedMems = "cpuset.mems"
)

// directory is a cgroup's directory with the files of a controller.
type directory struct {
	path    string
	unified bool // cgroup v2
}

func (d directory) child(name string) directory {
	return directory{filepath.Join(d.path, name), d.unified}
}

// Container is the cgroup of a container, made by the runtime.
type Container struct {
	cpuset, cpu, memory directory
}

// CPUs returns cpuset.cpus in the kernel's list syntax: "" on cgroup v2 if none was set. The error
// is fs.ErrNotExist if the cgroup is gone.
func (c Container) CPUs() (string, error) { return readSet(c.cpuset.path, allowedCPUs) }

// Mems returns cpuset.mems in the same way.
func (c Container) Mems() (string, error) { return readSet(c.cpuset.path, allowedMems) }

// CPULimit returns the container's CPU quota.
func (c Container) CPULimit() (CPULimit, error) { return c.cpu.cpuLimit() }

func readSet(dir, file string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(raw)), err
}

// FindContainer finds the cgroup of a container in that of its pod. Runtimes name it after the
// container's id, perhaps with prefix and suffix: ID, cri-containerd-ID.scope, crio-ID.scope. The
// error is fs.ErrNotExist if there is none (yet).
func (t *Tree) FindContainer(uid types.UID, id string) (Container, error) {
	if err := checkUID(uid); err != nil {
		return Container{}, err
	}
	for _, class := range classes() {
		pod := podGroup(t.root, class, uid)
		cpuset := t.dir("cpuset", pod)
		names, err := childDirs(cpuset.path)
		if err != nil {
			return Container{}, err
		}
		for _, name := range names {
			if isContainer(name, id) {
				return Container{cpuset.child(name), t.dir("cpu", pod).child(name),
					t.dir("memory", pod).child(name)}, nil
			}
		}
	}
	return Container{}, fmt.Errorf("find cgroup of container %s: %w", id, fs.ErrNotExist)
}

// isContainer excludes the cgroup of conmon, CRI-O's process that watches the container.
func isContainer(dir, id string) bool {
	return id != "" && strings.Contains(dir, id) && !strings.HasPrefix(dir, "crio-conmon-")
}

// WidenCPUs lets pods, and the groups around them, run on all CPUs of the cgroup root. They do from
// the start, but on cgroup v1 a CPU that goes offline leaves every cpuset for good, and a container
// cannot get it back before the groups above it have it. On v2 there is nothing to do.
func (t *Tree) WidenCPUs() error { return t.widen(allowedCPUs) }

// WidenMems does the same for the memory nodes of the cgroup root.
func (t *Tree) WidenMems() error { return t.widen(allowedMems) }

func (t *Tree) widen(file string) error {
	root := t.dir("cpuset", t.root)
	if root.unified {
		return nil
	}
	all, err := readSet(root.path, file)
	if err != nil {
		return fmt.Errorf("read %s of the cgroup root: %w", file, err)
	}
	var errs []error
	for _, class := range classes() {
		dir := t.dir("cpuset", qosGroup(t.root, class)).path
		errs = append(errs, writeOther(dir, file, all))
		names, err := childDirs(dir)
		errs = append(errs, err)
		for _, name := range names {
			if _, pod := parsePod(t.driver, name); pod {
				errs = append(errs, writeOther(filepath.Join(dir, name), file, all))
			}
		}
	}
	return errors.Join(errs...)
}

// writeOther writes the set of a cgroup, if the cgroup exists and has another one.
func writeOther(dir, file, set string) error {
	has, err := readSet(dir, file)
	if err == nil && has != set {
		err = oci.WriteFile(dir, file, set)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
