package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
)

// reserve limits the huge pages that a cgroup's processes may reserve, by page size, to what they may
// use: a mapping beyond that fails, where else its first use would be a bus error. Kernels before 5.7
// have no such limit.
func reserve(dir, suffix string, limits map[int64]int64) error {
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		name := fmt.Sprintf("hugetlb.%s.rsvd.%s", PageSizeName(size), suffix)
		err := writeExisting(dir, name, strconv.FormatInt(limits[size], 10))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("limit reserved huge pages: %w", err)
		}
	}
	return nil
}
