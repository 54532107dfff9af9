package cpumanager

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
)

// ReasonSMTAlignment is the kubelet's reason for rejecting a pod that whole cores cannot serve.
const ReasonSMTAlignment = "SMTAlignmentError"

// SMTAlignmentError says that no whole cores together have the requested number of CPUs. The text
// begins with the kubelet's.
type SMTAlignmentError struct {
	Requested int
	// CPUsPerCore is the number of online threads of the machine's largest core.
	CPUsPerCore int
	// Shortage: the machine has such cores, but they are not free. Available counts the CPUs in
	// cores that are entirely free.
	Shortage  bool
	Available int
	// Fitting holds the next smaller and the next larger number that would fit, if any: on the
	// machine when nothing runs, or now in case of a shortage.
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

// Reason returns the reason for rejecting a pod.
func (e *SMTAlignmentError) Reason() string { return ReasonSMTAlignment }

// CheckAlignment checks whether only the lack of whole cores prevents n CPUs from free and
// reusable: there are enough CPUs, but not in cores that would be the container's alone. The error
// is an *SMTAlignmentError; without full-pcpus-only there is none.
func (s *Static) CheckAlignment(free, reusable cpuset.CPUSet, n int) error {
	pool := s.layout.online.only(free).or(s.layout.online.only(reusable))
	err := s.alignment(pool, n)
	if err == nil || err.Shortage && n > pool.size() {
		return nil
	}
	return err
}

// Whole reports whether a container may get exactly these CPUs: with full-pcpus-only they must be
// whole cores; offline threads do not count.
func (s chooser) Whole(cpus cpuset.CPUSet) bool {
	if !s.options.FullPCPUsOnly {
		return true
	}
	set := s.layout.online.only(cpus)
	return wholeCores(s.layout.cores, set).size() == set.size()
}

// Padded returns the number of CPUs that a container gets if it asks for n while these are free: n
// or, for a pod that asks for whole cores (For), the next larger number that some of the cores have
// together. If the free cores have none, it returns what all cores would give if nothing ran.
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

// alignment returns why whole cores of pool cannot give n CPUs.
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

// wholeCores returns the part of pool that consists of whole cores. A core is all its online
// threads: with an offline sibling, one thread is a whole core.
func wholeCores(cores []*unit, pool bitmap) bitmap {
	whole := make(bitmap, len(pool))
	for _, core := range cores {
		if pool.contains(core.cpus) {
			whole.add(core.cpus)
		}
	}
	return whole
}

// sizes counts cores by size: element k is the number of cores with k CPUs.
type sizes []int

// coreSizes counts the cores that are entirely in pool.
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

// grown returns s with room for cores of size CPUs; it may be s itself.
func (s sizes) grown(size int) sizes {
	if size < len(s) {
		return s
	}
	out := make(sizes, size+1)
	copy(out, s)
	return out
}

// only returns the size of all the cores, 0 if their sizes differ.
func (s sizes) only() int {
	largest := s.largest()
	if s.total() != largest*s[largest] {
		return 0
	}
	return largest
}

func (s sizes) largest() int { return max(0, len(s)-1) }

// add changes s: it adds the cores of o.
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

// multiple reports whether whole cores of these sizes, however many, can have n CPUs.
func (s sizes) multiple(n int) bool {
	unlimited := make(sizes, len(s))
	for size, count := range s {
		if size > 0 && count > 0 {
			unlimited[size] = n/size + 1
		}
	}
	return unlimited.makeUp(n)
}

// makeUp reports whether some of the cores together have n CPUs.
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
	// Loop over the rare sizes; the most frequent one takes a division.
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
