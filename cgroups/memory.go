package cgroups

import "github.com/opencontainers/cgroups/fscommon"

// memoryUsed returns the used memory in bytes, which counts against the limit.
func (d directory) memoryUsed() (int64, error) {
	file := "memory.usage_in_bytes" // cgroup v1
	if d.unified {
		file = "memory.current"
	}
	used, err := fscommon.GetCgroupParamUint(d.path, file)
	return int64(used), err
}

// MemoryUsed returns the container's used memory in bytes.
func (c Container) MemoryUsed() (int64, error) { return c.memory.memoryUsed() }

// MemoryUsed returns the pod's used memory in bytes.
func (p Pod) MemoryUsed() (int64, error) { return p.tree.dir("memory", p.group).memoryUsed() }
