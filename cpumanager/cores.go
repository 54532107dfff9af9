package cpumanager

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
)

// ReasonSMTAlignment is the kubelet's reason for a pod that whole cores cannot serve.
const ReasonSMTAlignment = "SMTAlignmentError"

// SMTAlignmentError says that no whole cores have the requested number of CPUs together. The text
// begins with the kubelet's.
type SMTAlignmentError struct {
	Requested int
	// CPUsPerCore is the number of online threads of the machine's largest core.
	CPUsPerCore int
	// Shortage: the machine has such cores, but they are not free; Available CPUs are in cores that
	// are free as a whole.
	Shortage  bool
	Available int
	// Fitting are the next smaller and the next larger number that would fit, if there are any: on
	// the machine when nothing runs, or now in case of a shortage.
	Fitting []int
}

func (e *SMTAlignmentError) Error() string {
	text := fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d",
		e.Requested, e.CPUsPerCore)
	when := ""
	if e.Shortage {
		text = fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical "+
			"CPUs = %d, requested CPUs = %d, CPUs per core = %d",
			e.Available, e.Requested, e.CPUsPerCore)
		when = " now"
	}
	if len(e.Fitting) == 0 {
		return text + "; no whole core is free"
	}
	var sizes []string
	for _, n := range e.Fitting {
		sizes = append(sizes, fmt.Sprint(n))
	}
	return fmt.Sprintf("%s; what would fit%s: %s cpus", text, when, strings.Join(sizes, " or "))
}

// Reason is the reason to reject a pod with.
func (e *SMTAlignmentError) Reason() string { return ReasonSMTAlignment }

// CheckAlignment tells whether whole cores are what stands in the way of n CPUs from free and
// reusable: there are as many, but not in cores that would be the container's alone. The error is
// an *SMTAlignmentError; without full-pcpus-only there is none.
func (s *Static) CheckAlignment(free, reusable cpuset.CPUSet, n int) error {
	pool := free.Union(reusable).Intersection(s.machine.Online())
	err := s.alignment(pool, n)
	if err == nil || err.Shortage && n > pool.Size() {
		return nil
	}
	return err
}

// alignment is the reason why n CPUs cannot be had as whole cores of pool.
func (s *Static) alignment(pool cpuset.CPUSet, n int) *SMTAlignmentError {
	if !s.options.FullPCPUsOnly {
		return nil
	}
	now := coreSizes(s.tree, pool)
	if now.makeUp(n) {
		return nil
	}
	machine := coreSizes(s.tree, s.machine.Online())
	e := &SMTAlignmentError{Requested: n, CPUsPerCore: len(machine) - 1}
	of := coreSizes(s.tree, s.machine.Online().Difference(s.reserved))
	if machine.multiple(n) {
		e.Shortage, e.Available, of = true, now.total(), now
	}
	for m := min(n-1, of.total()); m > 0 && len(e.Fitting) == 0; m-- {
		if of.makeUp(m) {
			e.Fitting = append(e.Fitting, m)
		}
	}
	for m := n + 1; m <= of.total(); m++ {
		if of.makeUp(m) {
			e.Fitting = append(e.Fitting, m)
			break
		}
	}
	return e
}

// wholeCores is the part of pool that consists of whole cores. A core is all its online threads: one
// whose sibling is offline is whole by itself.
func wholeCores(tree []unit, pool cpuset.CPUSet) cpuset.CPUSet {
	var whole []int
	for _, core := range cores(tree) {
		if contains(pool, core.cpus) {
			whole = append(whole, core.cpus...)
		}
	}
	return cpuset.New(whole...)
}

// sizes counts cores by their number of CPUs: element k is the number of cores of k CPUs.
type sizes []int

// coreSizes counts the cores that lie in pool as a whole.
func coreSizes(tree []unit, pool cpuset.CPUSet) sizes {
	var s sizes
	for _, core := range cores(tree) {
		if contains(pool, core.cpus) {
			s = s.with(len(core.cpus), 1)
		}
	}
	return s
}

// coresByNode counts the cores that lie in pool as a whole, for each of s.nodes.
func (s *Static) coresByNode(pool cpuset.CPUSet) []sizes {
	counts := make([]sizes, len(s.nodes))
	for _, core := range cores(s.tree) {
		cpu, _ := s.machine.CPU(core.cpus[0])
		if at, ok := slices.BinarySearch(s.nodes, cpu.Node); ok && contains(pool, core.cpus) {
			counts[at] = counts[at].with(len(core.cpus), 1)
		}
	}
	return counts
}

// with is s with count more cores of size CPUs.
func (s sizes) with(size, count int) sizes {
	out := make(sizes, max(len(s), size+1))
	copy(out, s)
	out[size] += count
	return out
}

func (s sizes) plus(o sizes) sizes {
	for size, count := range o {
		s = s.with(size, count)
	}
	return s
}

func (s sizes) total() int {
	total := 0
	for size, count := range s {
		total += size * count
	}
	return total
}

// multiple tells whether n CPUs are whole cores of these sizes, however many.
func (s sizes) multiple(n int) bool {
	unlimited := make(sizes, len(s))
	for size, count := range s {
		if size > 0 && count > 0 {
			unlimited[size] = n/size + 1
		}
	}
	return unlimited.makeUp(n)
}

// makeUp tells whether some of the cores have n CPUs together.
func (s sizes) makeUp(n int) bool {
	total := s.total()
	if n > total {
		return false
	}
	n = min(n, total-n) // the cores that are not taken have the rest
	var kinds []kind
	for size, count := range s {
		if size > 0 && count > 0 {
			kinds = append(kinds, kind{size, count})
		}
	}
	// Loop over the rare sizes; the most frequent one is left to a division.
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Compare(a.count, b.count) })
	return makeUp(kinds, n)
}

type kind struct{ size, count int }

func makeUp(kinds []kind, n int) bool {
	if n == 0 || len(kinds) == 0 {
		return n == 0
	}
	k := kinds[0]
	if len(kinds) == 1 {
		return n%k.size == 0 && n/k.size <= k.count
	}
	for used := 0; used <= k.count && used*k.size <= n; used++ {
		if makeUp(kinds[1:], n-used*k.size) {
			return true
		}
	}
	return false
}

// cores lists the cores of the units.
func cores(units []unit) []unit {
	var out []unit
	for _, u := range units {
		if len(u.parts) == 0 {
			out = append(out, u)
			continue
		}
		out = append(out, cores(u.parts)...)
	}
	return out
}

func contains(pool cpuset.CPUSet, cpus []int) bool {
	for _, id := range cpus {
		if !pool.Contains(id) {
			return false
		}
	}
	return true
}
