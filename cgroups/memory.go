package cgroups

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// memoryUsed returns the used memory in bytes, which counts against the limit.
func (d directory) memoryUsed() (int64, error) {
	file := "memory.usage_in_bytes" // cgroup v1
	if d.unified {
		file = "memory.current"
	}
	text, err := readSet(d.path, file)
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", filepath.Join(d.path, file), err)
	}
	return used, nil
}

// MemoryUsed returns the container's used memory in bytes.
func (c Container) MemoryUsed() (int64, error) { return c.memory.memoryUsed() }

// MemoryUsed returns the pod's used memory in bytes.
func (p Pod) MemoryUsed() (int64, error) { return p.tree.dir("memory", p.group).memoryUsed() }
