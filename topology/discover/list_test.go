package discover

import (
	"slices"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

func TestThreads(t *testing.T) {
	tests := []struct {
		cores [][]int
		text  []string
	}{
		{nil, nil},
		{[][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, []string{"0-3+4-7"}},
		{[][]int{{0, 1}, {2, 3}}, []string{"0+1", "2+3"}},
		{[][]int{{0, 4, 8, 12}, {1, 5, 9, 13}}, []string{"0-1+4-5+8-9+12-13"}},
		{[][]int{{0, 8}, {1}, {2}, {4}, {5, 9}}, []string{"0+8", "1-2,4", "5+9"}},
		{[][]int{{0, 9}, {1, 8}}, []string{"0+9", "1+8"}},
	}
	for _, tt := range tests {
		text := formatThreads(tt.cores)
		if !slices.Equal(text, tt.text) {
			t.Errorf("formatThreads(%v) = %q, want %q", tt.cores, text, tt.text)
		}
	}
}

// Every accepted list equals the result of the cpuset library.
func FuzzParseList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3,1-2,2", " 7\n", "0-", "-1", "1--2", "0-65536",
		"0-99999999999", "a", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := parseList(s)
		if err != nil {
			return
		}
		if !slices.IsSorted(ids) || len(ids) > 0 && (ids[0] < 0 || ids[len(ids)-1] > topology.MaxID) {
			t.Fatalf("parseList(%q) = %v", s, ids)
		}
		again, err := parseList(formatList(ids))
		if err != nil || !slices.Equal(ids, again) {
			t.Fatalf("parseList(%q) = %v, then %v, %v", s, ids, again, err)
		}
		if theirs, err := cpuset.Parse(s); err == nil && !theirs.Equals(cpuset.New(ids...)) {
			t.Fatalf("parseList(%q) = %v, cpuset has %s", s, ids, theirs)
		}
	})
}

func FuzzParseThreads(f *testing.F) {
	for _, s := range []string{"0,8", "0-7+8-15", "0+1+2", "+", "0-1+2", "1+0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cores, err := parseThreads(s)
		if err != nil {
			return
		}
		for _, threads := range cores {
			if len(threads) == 0 || len(threads) != len(cores[0]) {
				t.Fatalf("parseThreads(%q) = %v", s, cores)
			}
		}
	})
}

func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    uint64
		back string
	}{
		{"0", 0, "0"},
		{"0Gi", 0, "0"},
		{"1023", 1023, "1023"},
		{"1024", 1024, "1Ki"},
		{"2048Ki", 2 << 20, "2Mi"},
		{"64Gi", 64 << 30, "64Gi"},
		{"3Ti", 3 << 40, "3Ti"},
		{"4194304Ti", 1 << 62, "4194304Ti"},
	} {
		n, err := parseBytes(tt.text)
		if err != nil || n != tt.n || formatBytes(n) != tt.back {
			t.Errorf("parseBytes(%q) = %d, %v; back %q", tt.text, n, err, formatBytes(n))
		}
	}
	for _, bad := range []string{"", "Gi", "-1", "1.5Gi", "1G", "1 Gi", "4194305Ti", "1GiMi"} {
		if n, err := parseBytes(bad); err == nil {
			t.Errorf("parseBytes(%q) = %d", bad, n)
		}
	}
}
