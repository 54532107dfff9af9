package prefer

import (
	"slices"
	"testing"
)

// Sixteen GPUs, all alike, in pairs, or in fours: the search, including what groups leave, looks at
// no more groups than there are groups of 8.
func TestFewGroupsAreTried(t *testing.T) {
	for _, same := range []int{1, 2, 4, 16} {
		l := make(Links, 16)
		for i := range l {
			l[i] = make([]Link, 16)
			for j := range l[i] {
				switch {
				case i/same == j/same:
					l[i][j].Path = Switch
				case i/8 == j/8:
					l[i][j].Path = Node
				default:
					l[i][j].Path = System
				}
			}
		}
		all := make([]int, 16)
		for i := range all {
			all[i] = i
		}
		for size := 1; size < 16; size++ {
			s := search{links: l, kinds: l.kinds(all, all)}
			if got := s.best(all, nil, size); len(got) != size {
				t.Fatalf("%d of 16: %v", size, got)
			}
			if s.tried > 12870 {
				t.Errorf("%d of 16, %d alike: %d groups were looked at", size, same, s.tried)
			}
		}
	}
}

// If too many groups tie, the search ends; groups not looked at are not preferred.
func TestTiesAreBounded(t *testing.T) {
	all := make([]int, 16)
	l := make(Links, 16)
	for i := range l {
		all[i] = i
		l[i] = make([]Link, 16)
	}
	kinds := make([][]int, 16) // as if no two were interchangeable
	for i := range kinds {
		kinds[i] = []int{i}
	}
	s := search{links: l, kinds: kinds, tried: maxTried + 1}
	if got := s.best(all, nil, 8); !slices.Equal(got, all[:8]) {
		t.Errorf("it chooses %v", got)
	}
	if s.tried > maxTried+1+12870 {
		t.Errorf("%d groups were looked at", s.tried-maxTried)
	}
}
