package devicemanager

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCompareIDs(t *testing.T) {
	ordered := []string{
		"", "01", "1", "1a", "2", "10", "GPU-9", "gpu", "gpu-", "gpu-0", "gpu-1", "gpu-1-0",
		"gpu-2", "gpu-10", "gpu-10-9", "gpu-10-10", "gpu-99999999999999999999",
		"gpu-100000000000000000000", "gpv",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := CompareIDs(a, b), compareInts(i, j); got != want {
				t.Errorf("CompareIDs(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestCompareIDsIsATotalOrder(t *testing.T) {
	id := rapid.StringMatching(`[a0-2:-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := id.Draw(t, "a"), id.Draw(t, "b"), id.Draw(t, "c")
		if CompareIDs(a, b) != -CompareIDs(b, a) {
			t.Errorf("%q and %q compare differently the other way around", a, b)
		}
		if CompareIDs(a, b) == 0 && a != b {
			t.Errorf("%q equals %q", a, b)
		}
		if CompareIDs(a, b) <= 0 && CompareIDs(b, c) <= 0 && CompareIDs(a, c) > 0 {
			t.Errorf("%q <= %q <= %q, but not the first and the last", a, b, c)
		}
	})
}

func TestSortedIDs(t *testing.T) {
	got := sortedIDs([]string{"b-10", "b-9", "a", "b-9"})
	if !slices.Equal(got, []string{"a", "b-9", "b-10"}) {
		t.Errorf("got %q", got)
	}
}
