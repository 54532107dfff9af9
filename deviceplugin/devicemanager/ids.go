package devicemanager

import (
	"cmp"
	"slices"
	"strings"
)

// CompareIDs defines the natural order of device ids: runs of digits compare as numbers, so gpu-2
// comes before gpu-10. The order is total: only equal ids compare as 0.
func CompareIDs(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		x, y := digits(a[i:]), digits(b[j:])
		if x == "" || y == "" {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		if c := compareNumbers(x, y); c != 0 {
			return c
		}
		i, j = i+len(x), j+len(y)
	}
	if c := cmp.Compare(len(a)-i, len(b)-j); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// lookUp returns the index of a device in a list in natural order, or where it would be inserted.
func lookUp(devices []*Device, id string) (at int, found bool) {
	return slices.BinarySearchFunc(devices, id,
		func(d *Device, id string) int { return CompareIDs(d.ID, id) })
}

// sortedIDs returns ids in natural order, each once.
func sortedIDs(ids []string) []string {
	out := slices.Clone(ids)
	slices.SortFunc(out, CompareIDs)
	return slices.Compact(out)
}

// digits returns the leading digits of s.
func digits(s string) string {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return s[:n]
}

func compareNumbers(x, y string) int {
	x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
}
