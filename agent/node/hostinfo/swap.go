package hostinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
)

// Swaps has a header and a line for each swap space (proc(5)).
const Swaps = "/proc/swaps"

func swapOn(swaps string) (bool, error) {
	raw, err := os.ReadFile(swaps)
	if err != nil {
		return false, fmt.Errorf("look for swap: %w", err)
	}
	return strings.Count(strings.TrimSpace(string(raw)), "\n") > 0, nil
}

// Unified reports whether the host has cgroup v2.
func Unified() bool { return unified("/") }

func unified(root string) bool {
	_, err := os.Stat(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"))
	return err == nil
}

// Swap returns what containers can use of the host's swap space. The host's files are below root.
func Swap(root string, limited bool) cri.Swap {
	out := cri.Swap{Limited: limited, Unified: unified(root)}
	cgroups := filepath.Join(root, "sys/fs/cgroup")
	limits := []string{filepath.Join(cgroups, "memory/memory.memsw.limit_in_bytes")}
	if out.Unified { // the machine's root has none; one that a container sees has
		limits = []string{filepath.Join(cgroups, "memory.swap.max"),
			filepath.Join(cgroups, "*", "memory.swap.max")}
	}
	for _, pattern := range limits {
		found, _ := filepath.Glob(pattern) // it is well formed
		out.Controlled = out.Controlled || len(found) > 0
	}
	if s := swap(filepath.Join(root, "proc/meminfo")); s != nil {
		out.Bytes = *s.Capacity
	}
	return out
}

// swap reads SwapTotal of proc_meminfo(5); nil: there is none.
func swap(path string) *v1.NodeSwapStatus {
	for line := range strings.Lines(readHost(path)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "SwapTotal:" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || kib == 0 {
			return nil
		}
		return &v1.NodeSwapStatus{Capacity: new(kib << 10)}
	}
	return nil
}
