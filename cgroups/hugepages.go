package cgroups

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	oci "github.com/opencontainers/cgroups"
)

// reserve limits the huge pages that a cgroup's processes may reserve, by page size, to what they may
// use: a mapping beyond that fails, where else its first use would be a bus error. Kernels before 5.7
// have no such limit. opencontainers' library writes it for v1; for v2 only together with a limit of
// swap, which it lifts with that of memory.
func reserve(dir string, limits map[int64]int64) error {
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		name := fmt.Sprintf("hugetlb.%s.rsvd.max", PageSizeName(size))
		if !exists(filepath.Join(dir, name)) {
			continue
		}
		if err := oci.WriteFile(dir, name, strconv.FormatInt(limits[size], 10)); err != nil {
			return fmt.Errorf("limit reserved huge pages: %w", err)
		}
	}
	return nil
}
