package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
)

// BenchmarkMerge measures one merge under restricted: CPUs, memory and devices, half of them taken.
// Up to 8 nodes there are three resources, beyond four. Exhaustive tries every combination of one
// hint each, as the kubelet does; times-faster compares ours for the same questions.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 32, 64} {
		providers := 3
		if n > 8 {
			providers = 4
		}
		m := invent(b, n, 16*n)
		r := rand.New(rand.NewPCG(7, uint64(n)))
		var questions []question
		for range 100 {
			questions = append(questions, ask(b, m, providers, r))
		}
		for _, way := range []struct {
			name    string
			options topology.Options
		}{{"plain", topology.Options{}}, {"closest", topology.PreferClosest(m)}} {
			b.Run(fmt.Sprintf("nodes=%d/%s", n, way.name), func(b *testing.B) {
				loop(b, len(questions), func(i int) {
					way.options.Merge(topology.Restricted, questions[i].nodes, questions[i].offers)
				})
			})
		}
		if n <= 8 {
			b.Run(fmt.Sprintf("nodes=%d/exhaustive", n), func(b *testing.B) {
				exhaust(b, questions)
			})
		}
	}
}

func exhaust(b *testing.B, questions []question) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var naive, ours time.Duration
	for i := 0; b.Loop(); i++ {
		q := questions[i%len(questions)]
		naive += timed(func() {
			exhaustive.Merge(topology.Restricted, q.nodes, q.offers, nil)
		})
		ours += timed(func() { topology.Options{}.Merge(topology.Restricted, q.nodes, q.offers) })
	}
	b.ReportMetric(0, "ns/op") // has both in it
	b.ReportMetric(float64(naive)/float64(b.N), "mean-ns")
	b.ReportMetric(float64(naive)/float64(ours), "times-faster")
}

// BenchmarkCPUs measures hints and choice for a quarter of the CPUs of a machine with one NUMA node
// per 16 CPUs, at most 8, a quarter of it taken at random.
func BenchmarkCPUs(b *testing.B) {
	for _, o := range []struct {
		name    string
		options cpumanager.Options
	}{
		{"none", cpumanager.Options{}},
		{"full-pcpus-only", cpumanager.Options{FullPCPUsOnly: true}},
		{"prefer-align-cpus-by-uncorecache", cpumanager.Options{PreferAlignByUncoreCache: true}},
		{"distribute-cpus-across-numa", cpumanager.Options{DistributeAcrossNUMA: true}},
		{"align-by-socket", cpumanager.Options{AlignBySocket: true}},
		{"distribute-cpus-across-cores", cpumanager.Options{DistributeAcrossCores: true}},
	} {
		for _, size := range []int{8, 32, 128, 512} {
			b.Run(fmt.Sprintf("option=%s/cpus=%d", o.name, size), func(b *testing.B) {
				chooseCPUs(b, size, o.options)
			})
		}
	}
}

func chooseCPUs(b *testing.B, size int, o cpumanager.Options) {
	m := invent(b, min(8, max(1, size/16)), size)
	static, err := cpumanager.NewStatic(m, cpuset.New(0, size/2), o)
	must(b, err)
	r := rand.New(rand.NewPCG(11, uint64(size)))
	var free []cpuset.CPUSet
	for range 50 {
		free = append(free, static.Free(cores(m, some(m.Online(), 0.125, r))))
	}
	none := cpuset.New()
	loop(b, len(free), func(i int) {
		offers := static.Supply(free[i], none, size/4).Hints()
		hint := topology.Hint{Any: true}
		if len(offers) > 0 {
			hint = offers[0]
		}
		_, err := static.Choose(free[i], none, size/4, hint)
		must(b, err)
	})
}

// cores returns the CPUs with their siblings.
func cores(m *topology.Machine, cpus cpuset.CPUSet) cpuset.CPUSet {
	var out []int
	for _, id := range cpus.List() {
		out = append(out, id, (id+m.Online().Size()/2)%m.Online().Size())
	}
	return cpuset.New(out...)
}
