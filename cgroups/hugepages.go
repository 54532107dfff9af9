package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// reserve limits the huge pages that a cgroup's processes may reserve, by page size, to what they may
// use: a mapping beyond that fails, where else its first use would be a bus error. since kernel 5.7.
func reserve(dir, suffix string, limits map[int64]int64) error {
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		name := fmt.Sprintf("hugetlb.%s.rsvd.%s", PageSizeName(size), suffix)
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_TRUNC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(strconv.FormatInt(limits[size], 10))
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("limit reserved huge pages: %w", err)
		}
	}
	return nil
}
