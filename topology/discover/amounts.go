package discover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/topology"
)

// binaryUnits returns the suffixes of amounts of memory, largest first.
func binaryUnits() []string { return []string{"Ti", "Gi", "Mi", "Ki"} }

// parseBytes reads an amount of memory: "64Gi", "512Mi", or plain bytes.
func parseBytes(s string) (uint64, error) {
	digits, factor := s, uint64(1)
	for i, unit := range binaryUnits() {
		if number, ok := strings.CutSuffix(s, unit); ok {
			digits, factor = number, 1<<(10*(len(binaryUnits())-i))
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > 1<<62/factor {
		return 0, fmt.Errorf("%q is not an amount of memory; write it like 64Gi, 512Mi or in bytes",
			shorten(s))
	}
	return n * factor, nil
}

// formatBytes is the inverse of parseBytes; it uses the largest unit that leaves a whole number.
func formatBytes(n uint64) string {
	for i, unit := range binaryUnits() {
		if size := uint64(1) << (10 * (len(binaryUnits()) - i)); n != 0 && n%size == 0 {
			return strconv.FormatUint(n/size, 10) + unit
		}
	}
	return strconv.FormatUint(n, 10)
}

// parseHugePages reads pools written as {2Mi: 512}.
func parseHugePages(path string, pools map[string]scalar) ([]topology.HugePages, error) {
	var out []topology.HugePages
	for _, size := range slices.Sorted(maps.Keys(pools)) {
		bytes, err := parseBytes(size)
		if err != nil {
			return nil, fmt.Errorf("%s: page size %w", path, err)
		}
		if bytes == 0 {
			return nil, fmt.Errorf("%s: a page size of 0", path)
		}
		count, err := strconv.ParseUint(string(pools[size]), 10, 53)
		if err != nil {
			return nil, fmt.Errorf("%s[%s]: %q is not a number of pages",
				path, size, shorten(string(pools[size])))
		}
		out = append(out, topology.HugePages{PageBytes: bytes, Count: count})
	}
	slices.SortFunc(out, func(a, b topology.HugePages) int {
		return cmp.Compare(a.PageBytes, b.PageBytes)
	})
	for i := 1; i < len(out); i++ {
		if out[i].PageBytes == out[i-1].PageBytes {
			return nil, fmt.Errorf("%s: the page size %s is listed twice",
				path, formatBytes(out[i].PageBytes))
		}
	}
	return out, nil
}

// parseHex reads an id of the given number of digits, with its 0x, into sysfs's form. YAML turns a
// number without quotes into decimal. Empty input gives "".
func parseHex(s string, digits int) (string, error) {
	if s == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(s, 0, 4*digits)
	if err != nil {
		return "", fmt.Errorf("%q is not an id of %d hex digits; write it like 0x%0*x",
			shorten(s), digits, digits, 0x10de)
	}
	return fmt.Sprintf("0x%0*x", digits, n), nil
}
