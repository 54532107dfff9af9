package prefer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Path is the PCIe path between two GPUs; a smaller value is a shorter path.
type Path int

// The paths, with the names of nvidia-smi topo.
const (
	Board    Path = iota // on the same board
	Switch               // PIX: one PCIe switch
	Switches             // PXB: several PCIe switches, no host bridge
	Bridge               // PHB: a host bridge
	Node                 // NODE: host bridges of one NUMA node
	System               // SYS: from one NUMA node to another
)

// String returns nvidia-smi's abbreviation.
func (p Path) String() string {
	names := [...]string{"BRD", "PIX", "PXB", "PHB", "NODE", "SYS"}
	if p < 0 || int(p) >= len(names) {
		return fmt.Sprintf("Path(%d)", int(p))
	}
	return names[p]
}

// Link describes the connection of two GPUs.
type Link struct {
	// NVLink is the bandwidth of all NVLinks between the two, through switches too, in GB/s one
	// way; 0 without any.
	NVLink int
	Path   Path
}

// Links holds the link between any two GPUs of a machine: a square matrix by position.
type Links [][]Link

// symmetric takes the worse of both directions.
func (l Links) symmetric() Links {
	out := make(Links, len(l))
	for i := range l {
		out[i] = make([]Link, len(l))
		for j := range l {
			a, b := l[i][j], l[j][i]
			out[i][j] = Link{NVLink: min(a.NVLink, b.NVLink), Path: max(a.Path, b.Path)}
		}
	}
	return out
}

// Quality says how good a group is; greater is better. Only groups of the same size compare.
type Quality struct {
	// Weakest is the least bandwidth of a pair, NVLink the sum of all pairs.
	Weakest, NVLink int
	// Longest is the longest path of a pair, Paths the sum of all paths.
	Longest Path
	Paths   int
}

// alone is the quality of a single GPU. No quality is worse than worst.
var (
	alone = Quality{Weakest: math.MaxInt}
	worst = Quality{Longest: math.MaxInt, Paths: math.MaxInt}
)

// Compare returns -1 if q is worse than o, 1 if it is better.
func (q Quality) Compare(o Quality) int {
	return cmp.Or(q.CompareNVLink(o), q.ComparePaths(o))
}

// CompareNVLink compares the NVLinks only.
func (q Quality) CompareNVLink(o Quality) int {
	return cmp.Or(cmp.Compare(q.Weakest, o.Weakest), cmp.Compare(q.NVLink, o.NVLink))
}

// ComparePaths compares only the PCIe paths.
func (q Quality) ComparePaths(o Quality) int {
	return cmp.Or(cmp.Compare(o.Longest, q.Longest), cmp.Compare(o.Paths, q.Paths))
}

// order says how to compare groups of the same size.
type order int

const (
	byAll order = iota
	byNVLink
)

func (by order) compare(a, b Quality) int {
	if by == byNVLink {
		return a.CompareNVLink(b)
	}
	return a.Compare(b)
}

// floor returns the worst quality that ties with q.
func (by order) floor(q Quality) Quality {
	if by == byNVLink {
		q.Longest, q.Paths = worst.Longest, worst.Paths
	}
	return q
}

// String is for tables.
func (q Quality) String() string {
	if q == alone {
		return "-"
	}
	if q.NVLink == 0 {
		return fmt.Sprintf("%s %d", q.Longest, q.Paths)
	}
	return fmt.Sprintf("NVLink %d/%d, %s %d", q.Weakest, q.NVLink, q.Longest, q.Paths)
}

// with returns the quality of the group with one more pair.
func (q Quality) with(l Link) Quality {
	return Quality{
		Weakest: min(q.Weakest, l.NVLink), NVLink: q.NVLink + l.NVLink,
		Longest: max(q.Longest, l.Path), Paths: q.Paths + int(l.Path),
	}
}

// reaches reports whether a group can become as good as best if its pairs gain at most more
// bandwidth. The weakest pair and the longest path do not improve.
func (q Quality) reaches(best Quality, more int) bool {
	q.NVLink += more
	return q.Compare(best) >= 0
}

// more returns, for each number of GPUs n, the most bandwidth that a group of n can gain until it
// has size: each new GPU brings its best links.
func (l Links) more(size int) []int {
	join := make([]int, size+1) // by the size of the group that a GPU joins
	for i := range l {
		var row []int
		for j, link := range l[i] {
			if i != j {
				row = append(row, link.NVLink)
			}
		}
		slices.Sort(row)
		sum := 0
		for n := range min(size, len(row)) {
			sum += row[len(row)-1-n]
			join[n+1] = max(join[n+1], sum)
		}
	}
	more := make([]int, size+1)
	for n := size - 1; n >= 0; n-- {
		more[n] = more[n+1] + join[n]
	}
	return more
}

// Of returns the quality of a group of positions.
func (l Links) Of(group []int) Quality {
	return l.symmetric().of(group)
}

// alike reports whether all NVLinks within group have the same bandwidth, also if there are none.
func (l Links) alike(group []int) bool {
	for _, i := range group {
		for _, j := range group {
			if i != j && l[i][j].NVLink != l[group[0]][group[1]].NVLink {
				return false
			}
		}
	}
	return true
}

func (l Links) of(group []int) Quality {
	q := alone
	for n, i := range group {
		q = l.joined(q, group[:n], i)
	}
	return q
}

// joined returns the quality of a group after i joins it.
func (l Links) joined(q Quality, group []int, i int) Quality {
	row := l[i]
	for _, j := range group {
		q = q.with(row[j])
	}
	return q
}
