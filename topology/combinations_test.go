package topology

import (
	"fmt"
	"testing"
)

func TestCombinations(t *testing.T) {
	for want, test := range map[string]struct{ n, k, stop int }{
		"[0 1] [0 2] [0 3] [1 2] [1 3] [2 3] ": {n: 4, k: 2},
		"[0 1] [0 2] ":                         {n: 4, k: 2, stop: 2},
		"[0 1 2] ":                             {n: 3, k: 3},
		"[] ":                                  {n: 3, k: 0},
		"":                                     {n: 2, k: 3},
	} {
		got, visits := "", 0
		Combinations(test.n, test.k, func(set []int) bool {
			got += fmt.Sprint(set) + " "
			visits++
			return visits != test.stop
		})
		if got != want {
			t.Errorf("Combinations(%d, %d): %q, want %q", test.n, test.k, got, want)
		}
	}
}
