package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// allowedCPUs and allowedMems hold the CPUs and memory nodes that a cgroup was given; both versions
// use these names. The kernel may let its processes use fewer, or others if none of them is online
// (cgroup v2: cpuset.cpus.effective, cpuset.mems.effective).
const (
	allowedCPUs = "cpuset.cpus"
	allowedMems = "cpuset.mems"
)

// Container is the cgroup of a container, made by the runtime.
type Container struct {
	cpuset string // its directory in the hierarchy with the controller
	cpu    cpuGroup
	memory memoryGroup
}

// CPUs returns cpuset.cpus in the kernel's list syntax: "" on cgroup v2 if none was set. The error
// is fs.ErrNotExist if the cgroup is gone.
func (c Container) CPUs() (string, error) { return readSet(c.cpuset, allowedCPUs) }

// Mems returns cpuset.mems in the same way.
func (c Container) Mems() (string, error) { return readSet(c.cpuset, allowedMems) }

// CPULimit returns the container's CPU quota.
func (c Container) CPULimit() (CPULimit, error) { return c.cpu.limit() }

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
		dir := t.cpusetDir(pod)
		names, err := childDirs(dir)
		if err != nil {
			return Container{}, err
		}
		for _, name := range names {
			if isContainer(name, id) {
				c := Container{filepath.Join(dir, name), t.cpuGroup(pod), t.memoryGroup(pod)}
				c.cpu.dir = filepath.Join(c.cpu.dir, name)
				c.memory.dir = filepath.Join(c.memory.dir, name)
				return c, nil
			}
		}
	}
	return Container{}, fmt.Errorf("find cgroup of container %s: %w", id, fs.ErrNotExist)
}

// isContainer excludes the cgroup of conmon, CRI-O's process that watches the container.
func isContainer(dir, id string) bool {
	return id != "" && strings.Contains(dir, id) && !strings.HasPrefix(dir, "crio-conmon-")
}

// cpusetDir returns the group's directory in the hierarchy with the cpuset controller.
func (t *Tree) cpusetDir(g group) string { return t.controllerDir("cpuset", g) }

// controllerDir returns the group's directory in the hierarchy with a controller.
func (t *Tree) controllerDir(controller string, g group) string {
	switch k := t.kernel.(type) {
	case *legacy:
		return filepath.Join(k.mount, controller, g.path(t.driver))
	case *unified:
		return filepath.Join(k.mount, g.path(t.driver))
	default:
		panic("cgroups: no such version")
	}
}

// WidenCPUs lets pods, and the groups around them, run on all CPUs of the cgroup root. They do from
// the start, but on cgroup v1 a CPU that goes offline leaves every cpuset for good, and a container
// cannot get it back before the groups above it have it. On v2 there is nothing to do.
func (t *Tree) WidenCPUs() error { return t.widen(allowedCPUs) }

// WidenMems does the same for the memory nodes of the cgroup root.
func (t *Tree) WidenMems() error { return t.widen(allowedMems) }

func (t *Tree) widen(file string) error {
	if _, ok := t.kernel.(*legacy); !ok {
		return nil
	}
	all, err := readSet(t.cpusetDir(t.root), file)
	if err != nil {
		return fmt.Errorf("read %s of the cgroup root: %w", file, err)
	}
	var errs []error
	for _, class := range classes() {
		dir := t.cpusetDir(qosGroup(t.root, class))
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
		err = writeExisting(dir, file, set)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeExisting writes a file of a cgroup; the error is fs.ErrNotExist if the cgroup is gone.
func writeExisting(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
