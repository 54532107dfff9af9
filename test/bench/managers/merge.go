package managers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
)

// Merge compares topology.Merge with going through all picks where that ends, with three
// resources, and shows it alone beyond, with four.
func Merge() (*Table, error) {
	t := newTable("Merging hints",
		"One merge under restricted; CPUs, memory and devices, half of them taken. Exhaustive "+
			"goes\n"+
			"through every pick of one hint each, as the kubelet does; the mean of the same "+
			"questions.",
		"NODES", "RESOURCES", "OURS p50 / p99", "CLOSEST p50 / p99", "EXHAUSTIVE", "TIMES FASTER")
	for _, n := range []int{2, 4, 8, 16, 32, 64} {
		providers := 3
		if n > 8 {
			providers = 4
		}
		m, err := invent(n, 16*n)
		if err != nil {
			return nil, err
		}
		questions, err := asked(m, providers)
		if err != nil {
			return nil, err
		}
		plain := merged(topology.Options{}, questions)
		closest := merged(topology.PreferClosest(m), questions)
		naive, times := "-", "-"
		t.Values[fmt.Sprintf("merge_ms_%d", n)] = ms(plain.p50())
		t.Values[fmt.Sprintf("merge_p99_ms_%d", n)] = ms(plain.p99())
		if n <= 8 {
			took, ours := exhausted(questions)
			naive, times = short(took), fmt.Sprintf("%.0f", float64(took)/float64(ours))
			t.Values[fmt.Sprintf("merge_exhaustive_ms_%d", n)] = ms(took)
		}
		t.row(fmt.Sprint(n), fmt.Sprint(providers), plain.String(), closest.String(), naive, times)
	}
	return t, nil
}

func asked(m *topology.Machine, providers int) (out []question, err error) {
	r := rand.New(rand.NewPCG(7, uint64(m.NodeSet().Len())))
	for range 100 {
		q, err := ask(m, providers, 0.5, r)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

func merged(o topology.Options, questions []question) times {
	return measure(len(questions), func(i int) {
		o.Merge(topology.Restricted, questions[i].nodes, questions[i].offers)
	})
}

// exhausted is the mean time of the first questions merged exhaustively, as many as fit the
// budget, and that of ours for the same ones.
func exhausted(questions []question) (naive, ours time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := 0
	for ; naive < 4*budget && n < len(questions); n++ {
		q, begin := questions[n], threadTime()
		exhaustive.Merge(topology.Restricted, q.nodes, q.offers, nil)
		between := threadTime()
		topology.Merge(topology.Restricted, q.nodes, q.offers)
		naive, ours = naive+between-begin, ours+threadTime()-between
	}
	return naive / time.Duration(n), ours / time.Duration(n)
}
