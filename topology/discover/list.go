package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// parseList reads the kernel's list syntax ("0-3,8"): distinct ids in ascending order, nil for an
// empty list.
func parseList(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var ids []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := parseID(first)
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", shorten(s), err)
		}
		high := low
		if isRange {
			if high, err = parseID(last); err != nil {
				return nil, fmt.Errorf("list %q: %w", shorten(s), err)
			}
		}
		if high < low {
			return nil, fmt.Errorf("list %q: the range %s runs backwards", shorten(s), part)
		}
		for id := low; id <= high; id++ {
			ids = append(ids, id)
		}
		if len(ids) > 4*topology.MaxID {
			return nil, fmt.Errorf("list %q: too long", shorten(s))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func parseID(s string) (int, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", shorten(s))
	}
	if id > topology.MaxID {
		return 0, fmt.Errorf("%d is larger than %d, the largest id", id, topology.MaxID)
	}
	return int(id), nil
}

func formatList(ids []int) string { return cpuset.New(ids...).String() }

// parseThreads reads groups of SMT siblings: "0-3+32-35" stands for the four cores 0,32 1,33 2,34
// 3,35; a list without "+" ("0,32") is one core.
func parseThreads(s string) ([][]int, error) {
	parts := strings.Split(s, "+")
	lists := make([][]int, len(parts))
	for i, part := range parts {
		ids, err := parseList(part)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("%q has an empty list", shorten(s))
		}
		lists[i] = ids
	}
	if len(lists) == 1 {
		return lists, nil
	}
	cores := make([][]int, len(lists[0]))
	for _, ids := range lists {
		if len(ids) != len(cores) {
			return nil, fmt.Errorf("%q has lists of %d and %d threads",
				shorten(s), len(cores), len(ids))
		}
		for i, id := range ids {
			cores[i] = append(cores[i], id)
		}
	}
	return cores, nil
}

// formatThreads is the inverse of parseThreads in few words: cores with consecutive threads share
// an entry. Cores and their threads must be in ascending order. Cores with one thread share an
// entry without "+", which parseThreads would read as one core.
func formatThreads(cores [][]int) []string {
	var out []string
	for i := 0; i < len(cores); {
		n := 1
		for i+n < len(cores) && follows(cores[i+n-1], cores[i+n]) {
			n++
		}
		columns := make([]string, len(cores[i]))
		for c := range columns {
			column := make([]int, n)
			for row := range column {
				column[row] = cores[i+row][c]
			}
			columns[c] = formatList(column)
		}
		out = append(out, strings.Join(columns, "+"))
		i += n
	}
	return out
}

// follows reports whether each thread of b is the successor of that of a; cores with one thread may
// have gaps.
func follows(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if b[i] != a[i]+1 && len(a) > 1 {
			return false
		}
	}
	return true
}

// shorten keeps error messages about wrong input to one line.
func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
