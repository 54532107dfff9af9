package managers

import (
	"fmt"
	"math/rand/v2"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// CPUs measures offering and choosing CPUs on machines of 8 to 512, per option.
func CPUs() (*Table, error) {
	options := []struct {
		name    string
		options cpumanager.Options
	}{
		{"(none)", cpumanager.Options{}},
		{"full-pcpus-only", cpumanager.Options{FullPCPUsOnly: true}},
		{"prefer-align-cpus-by-uncorecache", cpumanager.Options{PreferAlignByUncoreCache: true}},
		{"distribute-cpus-across-numa", cpumanager.Options{DistributeAcrossNUMA: true}},
		{"align-by-socket", cpumanager.Options{AlignBySocket: true}},
		{"distribute-cpus-across-cores", cpumanager.Options{DistributeAcrossCores: true}},
	}
	sizes := []int{8, 32, 128, 512}
	t := newTable("Choosing CPUs",
		"Hints and choice for a quarter of the CPUs of a machine with one NUMA node per 16 CPUs, "+
			"at\n"+
			"most 8, a quarter of it taken at random; median / 99th percentile.",
		"OPTION", "8 CPUs", "32 CPUs", "128 CPUs", "512 CPUs")
	for _, o := range options {
		cells := []string{o.name}
		for _, size := range sizes {
			took, err := chosen(size, o.options)
			if err != nil {
				return nil, err
			}
			cells = append(cells, took.String())
			if o.options == (cpumanager.Options{}) {
				t.Values[fmt.Sprintf("cpu_choice_ms_%d", size)] = ms(took.p50())
			}
		}
		t.row(cells...)
	}
	return t, nil
}

func chosen(size int, o cpumanager.Options) (times, error) {
	m, err := invent(min(8, max(1, size/16)), size)
	if err != nil {
		return nil, err
	}
	static, err := cpumanager.NewStatic(m, cpuset.New(0, size/2), o)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(11, uint64(size)))
	var free []cpuset.CPUSet
	for range 50 {
		free = append(free, static.Free(cores(m, some(m.Online(), 0.125, r))))
	}
	none := cpuset.New()
	var failed error
	took := measure(len(free), func(i int) {
		offers := static.Hints(free[i], none, size/4)
		hint := topology.Hint{Any: true}
		if len(offers) > 0 {
			hint = offers[0]
		}
		if _, err := static.Choose(free[i], none, size/4, hint); err != nil {
			failed = err
		}
	})
	return took, failed
}

// cores are the CPUs with their siblings.
func cores(m *topology.Machine, cpus cpuset.CPUSet) cpuset.CPUSet {
	var out []int
	for _, id := range cpus.List() {
		out = append(out, id, (id+m.Online().Size()/2)%m.Online().Size())
	}
	return cpuset.New(out...)
}
