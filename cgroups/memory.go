package cgroups

import (
	"math"

	"github.com/opencontainers/cgroups/fscommon"
)

// memoryUsed returns the used memory in bytes, which counts against the limit.
func (d directory) memoryUsed() (int64, error) {
	file := "memory.usage_in_bytes" // cgroup v1
	if d.unified {
		file = "memory.current"
	}
	used, err := fscommon.GetCgroupParamUint(d.path, file)
	return int64(used), err
}

// memoryLimit returns the limit in bytes; Unlimited: there is none.
func (d directory) memoryLimit() (int64, error) {
	file := "memory.limit_in_bytes" // cgroup v1, where no limit is a number that no machine has
	if d.unified {
		file = "memory.max"
	}
	limit, err := fscommon.GetCgroupParamUint(d.path, file)
	if err != nil || limit > math.MaxInt64-1<<20 {
		return Unlimited, err
	}
	return int64(limit), nil
}

// MemoryLimit returns the pod's limit in bytes; Unlimited: it has none.
func (p Pod) MemoryLimit() (int64, error) { return p.tree.dir("memory", p.group).memoryLimit() }

// MemoryUsed returns the container's used memory in bytes.
func (c Container) MemoryUsed() (int64, error) { return c.memory.memoryUsed() }

// MemoryUsed returns the pod's used memory in bytes.
func (p Pod) MemoryUsed() (int64, error) { return p.tree.dir("memory", p.group).memoryUsed() }
