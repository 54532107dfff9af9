package memory_test

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/topology/memory"
)

func BenchmarkHints(b *testing.B) {
	for _, n := range []int{2, 8, 16, 64} {
		s := make(shape, n)
		for i := range s {
			s[i] = [2]uint64{9, 1}
		}
		p := s.static(b)
		held := []memory.Block{block(4, 0)}
		for _, size := range []uint64{3, 20} {
			b.Run(fmt.Sprintf("%d nodes, %d GiB", n, size), func(b *testing.B) {
				for b.Loop() {
					hintsOf(p, held, nil, want(size))
				}
			})
		}
	}
}
