package topology_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// adversary makes hint lists for n nodes that are hard to merge.
type adversary struct {
	name  string
	lists func(n int, r *rand.Rand) [][]topology.Hint
}

// adversaries returns lists as providers offer on large machines (narrow sets, all of a width), and
// unrealistic ones.
func adversaries() []adversary {
	type lists = func(n int, r *rand.Rand) [][]topology.Hint
	four := func(list func(i, n int, r *rand.Rand) []topology.Hint) lists {
		return func(n int, r *rand.Rand) (out [][]topology.Hint) {
			for i := range 4 {
				out = append(out, list(i, n, r))
			}
			return out
		}
	}
	return []adversary{
		{"one node each", four(func(_, n int, _ *rand.Rand) []topology.Hint {
			return narrowSets(n, 1, func([]int) bool { return true })
		})},
		{"nothing preferred", four(func(_, n int, _ *rand.Rand) []topology.Hint {
			return narrowSets(n, 0, func([]int) bool { return true })
		})},
		{"pairs without a match", four(func(i, n int, _ *rand.Rand) []topology.Hint {
			return narrowSets(n, 0, func(set []int) bool {
				return len(set) == 2 && (set[0]+set[1])%4 == i
			})
		})},
		{"a group each", four(func(i, n int, _ *rand.Rand) []topology.Hint {
			all := topology.Hint{Nodes: firstNodes(n)}
			return append(narrowSets(n, 1, func(set []int) bool {
				return set[0]%4 == i && set[len(set)-1]%4 == i
			}), all)
		})},
		{"random sets of eight", four(func(_, n int, r *rand.Rand) []topology.Hint {
			return randomSets(n, min(8, n), 2000, r)
		})},
		{"random halves", four(func(_, n int, r *rand.Rand) []topology.Hint {
			return randomSets(n, (n+1)/2, 2000, r)
		})},
		{"random widths", four(func(i, n int, r *rand.Rand) []topology.Hint {
			return randomSets(n, 0, 2000, r)
		})},
		{"two of different widths", func(n int, r *rand.Rand) [][]topology.Hint {
			return [][]topology.Hint{
				randomSets(n, min(3, n), 2000, r), randomSets(n, min(5, n), 2000, r),
				randomSets(n, min(8, n), 2000, r), randomSets(n, min(2, n), 2000, r),
			}
		}},
	}
}

func firstNodes(n int) topology.NodeSet {
	var ids []topology.NodeID
	for id := range n {
		ids = append(ids, topology.NodeID(id))
	}
	return topology.NewNodeSet(ids...)
}

// narrowSets returns the sets of one and two of n nodes that keep accepts; those with preferred
// nodes are preferred.
func narrowSets(n, preferred int, keep func([]int) bool) []topology.Hint {
	hints := []topology.Hint{}
	for a := range n {
		for b := a; b < n; b++ {
			set := slices.Compact([]int{a, b})
			if keep(set) {
				hints = append(hints, topology.Hint{
					Nodes:     topology.NewNodeSet(topology.NodeID(a), topology.NodeID(b)),
					Preferred: len(set) == preferred,
				})
			}
		}
	}
	return hints
}

// randomSets returns count sets of this width; width 0: of any.
func randomSets(n, width, count int, r *rand.Rand) []topology.Hint {
	var hints []topology.Hint
	for range count {
		w := width
		if w == 0 {
			w = 1 + r.IntN(n)
		}
		var ids []topology.NodeID
		for _, id := range r.Perm(n)[:w] {
			ids = append(ids, topology.NodeID(id))
		}
		hints = append(hints, topology.Hint{Nodes: topology.NewNodeSet(ids...)})
	}
	return hints
}

func offersOf(lists [][]topology.Hint) (out [][]topology.ResourceHints) {
	for i, hints := range lists {
		out = append(out, []topology.ResourceHints{{Resource: fmt.Sprint("r", i), Hints: hints}})
	}
	return out
}

// BenchmarkMerge reports the 99th percentile of one merge beside the mean.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 32, 64, 128} {
		closest := topology.PreferClosest(ring(b, n))
		for _, a := range adversaries() {
			offers := offersOf(a.lists(n, rand.New(rand.NewPCG(1, uint64(n)))))
			for name, options := range map[string]topology.Options{"plain": {},
				"closest": closest} {
				b.Run(fmt.Sprintf("nodes=%d/%s/%s", n, a.name, name), func(b *testing.B) {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					var took []time.Duration
					for b.Loop() {
						begin := threadTime()
						options.Merge(topology.BestEffort, firstNodes(n), offers)
						took = append(took, threadTime()-begin)
					}
					slices.Sort(took)
					p99 := took[len(took)*99/100]
					b.ReportMetric(float64(p99.Microseconds())/1000, "p99-cpu-ms")
				})
			}
		}
	}
}

// threadTime returns the CPU time of this thread; on a busy machine the clock would measure other
// programs too.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// ring is a machine of n nodes with a CPU each, in groups of four that are closer.
func ring(t testing.TB, n int) *topology.Machine {
	spec := topology.Spec{Name: "ring"}
	for a := range n {
		node := topology.Node{ID: topology.NodeID(a), Distances: map[topology.NodeID]int{}}
		for b := range n {
			away := min((a-b+n)%n, (b-a+n)%n)
			switch {
			case a == b:
				node.Distances[topology.NodeID(b)] = 10
			case a/4 == b/4:
				node.Distances[topology.NodeID(b)] = 12
			default:
				node.Distances[topology.NodeID(b)] = 20 + away
			}
		}
		spec.Nodes = append(spec.Nodes, node)
		spec.CPUs = append(spec.CPUs, topology.CPU{
			ID: a, Node: node.ID, Socket: topology.SocketID(a), Core: topology.CoreID(a),
			L3: topology.L3ID(a),
		})
	}
	return topologytest.Of(t, spec)
}
