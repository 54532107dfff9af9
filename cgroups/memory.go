package cgroups

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// memoryGroup is a cgroup's directory in the hierarchy with the memory controller.
type memoryGroup struct {
	dir     string
	unified bool
}

func (t *Tree) memoryGroup(g group) memoryGroup {
	_, v2 := t.kernel.(*unified)
	return memoryGroup{t.controllerDir("memory", g), v2}
}

// used returns the used memory in bytes, which counts against the limit.
func (m memoryGroup) used() (int64, error) {
	file := "memory.usage_in_bytes" // cgroup v1
	if m.unified {
		file = "memory.current"
	}
	text, err := readSet(m.dir, file)
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", filepath.Join(m.dir, file), err)
	}
	return used, nil
}

// MemoryUsed returns the container's used memory in bytes.
func (c Container) MemoryUsed() (int64, error) { return c.memory.used() }

// MemoryUsed returns the pod's used memory in bytes.
func (p Pod) MemoryUsed() (int64, error) { return p.tree.memoryGroup(p.group).used() }
