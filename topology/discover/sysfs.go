package discover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// attributes reads the small text files of /sys and /proc. Paths are relative to the root
// ("sys/devices/system/cpu").
type attributes struct{ fsys fs.FS }

// maxText bounds a file in bytes, far above any attribute; /proc/cpuinfo of a large machine is the
// largest.
const maxText = 16 << 20

// text returns the content of a file without surrounding white space.
func (a attributes) text(path string) (string, error) {
	f, err := a.fsys.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxText {
		return "", fmt.Errorf("read %s: larger than %d MiB", path, maxText>>20)
	}
	return strings.TrimSpace(string(data)), nil
}

func (a attributes) number(path string) (int, error) {
	text, err := a.text(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read %s: %q is not a number", path, shorten(text))
	}
	return n, nil
}

// list parses a file in the kernel's list syntax.
func (a attributes) list(path string) ([]int, error) {
	text, err := a.text(path)
	if err != nil || text == nullList {
		return nil, err
	}
	ids, err := parseList(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return ids, nil
}

// numbered lists N of the entries prefixN of a directory in ascending order.
func (a attributes) numbered(dir, prefix string) ([]int, error) {
	entries, err := fs.ReadDir(a.fsys, dir)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || strings.Trim(digits, "0123456789") != "" || digits == "" {
			continue
		}
		id, err := parseID(digits)
		if err != nil {
			return nil, fmt.Errorf("read %s/%s: %w", dir, e.Name(), err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// memTotal returns MemTotal of a meminfo file in bytes; the lines of a node's file start with "Node
// N".
func (a attributes) memTotal(path string) (uint64, error) {
	text, err := a.text(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, "MemTotal:")
		if !ok {
			continue
		}
		amount := strings.TrimSpace(rest)
		kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(amount, "kB")), 10, 53)
		if err != nil {
			return 0, fmt.Errorf("read %s: %q is not an amount of memory", path, shorten(amount))
		}
		return kib * 1024, nil
	}
	return 0, fmt.Errorf("read %s: no MemTotal", path)
}

// absent reports whether a file is missing: for many attributes this means that the kernel, the
// platform or the capture lacks it.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
