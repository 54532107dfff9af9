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

// allowedCPUs has the CPUs that a cgroup was given; both versions call it that. The kernel may let
// its processes run on fewer, or on others when none of them is online.
const allowedCPUs = "cpuset.cpus"

// Container is the cgroup of a container, made by the runtime.
type Container struct{ dir string }

// CPUs is cpuset.cpus in the kernel's list syntax: "" on cgroup v2 where none was set. The error is
// fs.ErrNotExist when the cgroup is gone.
func (c Container) CPUs() (string, error) { return readCPUs(c.dir) }

func readCPUs(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, allowedCPUs))
	return strings.TrimSpace(string(raw)), err
}

// FindContainer finds the cgroup of a container in that of its pod. Runtimes name it by the
// container's id, with or without something around it: ID, cri-containerd-ID.scope,
// crio-ID.scope. The error is fs.ErrNotExist when there is none (yet).
func (t *Tree) FindContainer(uid types.UID, id string) (Container, error) {
	if err := checkUID(uid); err != nil {
		return Container{}, err
	}
	for _, class := range classes() {
		dir := t.cpusetDir(podGroup(t.root, class, uid))
		names, err := childDirs(dir)
		if err != nil {
			return Container{}, err
		}
		for _, name := range names {
			if isContainer(name, id) {
				return Container{filepath.Join(dir, name)}, nil
			}
		}
	}
	return Container{}, fmt.Errorf("find cgroup of container %s: %w", id, fs.ErrNotExist)
}

// isContainer leaves out the cgroup of CRI-O's process that watches the container.
func isContainer(dir, id string) bool {
	return id != "" && strings.Contains(dir, id) && !strings.HasPrefix(dir, "crio-conmon-")
}

// cpusetDir is the group's folder in the hierarchy that has the cpuset controller.
func (t *Tree) cpusetDir(g group) string {
	switch k := t.kernel.(type) {
	case *legacy:
		return filepath.Join(k.mount, "cpuset", g.path(t.driver))
	case *unified:
		return filepath.Join(k.mount, g.path(t.driver))
	default:
		panic("cgroups: no such version")
	}
}

// WidenCPUs lets pods, and the groups that they are in, run on all CPUs of the cgroup root. That
// is so from the start, but on cgroup v1 a CPU that goes offline leaves every cpuset for good, and
// a container cannot get it back before those above it have it. On v2 there is nothing to do.
func (t *Tree) WidenCPUs() error {
	if _, ok := t.kernel.(*legacy); !ok {
		return nil
	}
	all, err := readCPUs(t.cpusetDir(t.root))
	if err != nil {
		return fmt.Errorf("read CPUs of the cgroup root: %w", err)
	}
	var errs []error
	for _, class := range classes() {
		dir := t.cpusetDir(qosGroup(t.root, class))
		errs = append(errs, widen(dir, all))
		names, err := childDirs(dir)
		errs = append(errs, err)
		for _, name := range names {
			if _, pod := parsePod(t.driver, name); pod {
				errs = append(errs, widen(filepath.Join(dir, name), all))
			}
		}
	}
	return errors.Join(errs...)
}

// widen writes the CPUs of a cgroup that exists and has others.
func widen(dir, cpus string) error {
	has, err := readCPUs(dir)
	if err == nil && has != cpus {
		err = os.WriteFile(filepath.Join(dir, allowedCPUs), []byte(cpus), 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
