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
		text = fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available "+
			"physical CPUs = %d, requested CPUs = %d, CPUs per core = %d",
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

// CheckAlignment reports whether whole cores are what stands in the way of n CPUs from free and
// reusable: there are as many, but not in cores that would be the container's alone. The error is
// an *SMTAlignmentError; without full-pcpus-only there is none.
func (s *Static) CheckAlignment(free, reusable cpuset.CPUSet, n int) error {
	pool := s.layout.online.only(free).or(s.layout.online.only(reusable))
	err := s.alignment(pool, n)
	if err == nil || err.Shortage && n > pool.size() {
		return nil
	}
	return err
}

// Whole reports whether a container may be given just these CPUs: with full-pcpus-only they are
// whole cores, as far as these are online.
func (s *Static) Whole(cpus cpuset.CPUSet) bool {
	if !s.options.FullPCPUsOnly {
		return true
	}
	set := s.layout.online.only(cpus)
	return wholeCores(s.layout.cores, set).size() == set.size()
}

// Padded is the number of CPUs that a container gets which asks for n while these are free: n, or
// for a pod that asked for whole cores (For) the next larger number that some of the cores have
// together. If the free ones have none, it is what all would have if nothing ran.
func (s *Static) Padded(free cpuset.CPUSet, n int) int {
	if n <= 0 || !s.pads {
		return n
	}
	largest := max(1, s.layout.sizes.largest())
	for _, set := range []cpuset.CPUSet{free, s.allocatable} {
		of := coreSizes(s.layout.cores, s.layout.online.only(set))
		for m := n; m < n+largest && m <= of.total(); m++ {
			if of.makeUp(m) {
				return m
			}
		}
	}
	return (n + largest - 1) / largest * largest
}

// alignment is the reason why n CPUs cannot be had as whole cores of pool.
func (s *Static) alignment(pool bitmap, n int) *SMTAlignmentError {
	if !s.options.FullPCPUsOnly {
		return nil
	}
	now := coreSizes(s.layout.cores, pool)
	if now.makeUp(n) {
		return nil
	}
	e := &SMTAlignmentError{Requested: n, CPUsPerCore: s.layout.sizes.largest()}
	of := coreSizes(s.layout.cores, s.layout.online.only(s.allocatable))
	if s.layout.sizes.multiple(n) {
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

// wholeCores is the part of pool that consists of whole cores. A core is all its online threads:
// one whose sibling is offline is whole by itself.
func wholeCores(cores []*unit, pool bitmap) bitmap {
	whole := make(bitmap, len(pool))
	for _, core := range cores {
		if pool.contains(core.cpus) {
			whole.add(core.cpus)
		}
	}
	return whole
}

// sizes counts cores by their number of CPUs: element k is the number of cores of k CPUs.
type sizes []int

// coreSizes counts the cores that lie in pool as a whole.
func coreSizes(cores []*unit, pool bitmap) sizes {
	var s sizes
	for _, core := range cores {
		if pool.contains(core.cpus) {
			s = s.grown(core.size)
			s[core.size]++
		}
	}
	return s
}

// grown is s with room for cores of size CPUs; it may be s itself.
func (s sizes) grown(size int) sizes {
	if size < len(s) {
		return s
	}
	out := make(sizes, size+1)
	copy(out, s)
	return out
}

// only is the size of all the cores, 0 if they are not of one size.
func (s sizes) only() int {
	largest := s.largest()
	if s.total() != largest*s[largest] {
		return 0
	}
	return largest
}

func (s sizes) largest() int { return max(0, len(s)-1) }

// add changes s: it gets the cores of o too.
func (s *sizes) add(o sizes) {
	*s = s.grown(o.largest())
	for size, count := range o {
		(*s)[size] += count
	}
}

func (s sizes) total() int {
	total := 0
	for size, count := range s {
		total += size * count
	}
	return total
}

// multiple reports whether n CPUs are whole cores of these sizes, however many.
func (s sizes) multiple(n int) bool {
	unlimited := make(sizes, len(s))
	for size, count := range s {
		if size > 0 && count > 0 {
			unlimited[size] = n/size + 1
		}
	}
	return unlimited.makeUp(n)
}

// makeUp reports whether some of the cores have n CPUs together.
func (s sizes) makeUp(n int) bool {
	total := s.total()
	if n > total {
		return false
	}
	n = min(n, total-n)         // the cores that are not taken have the rest
	kinds := make([]kind, 0, 8) // on the stack: few machines have more
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
