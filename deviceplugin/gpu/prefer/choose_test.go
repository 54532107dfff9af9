package prefer_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// linksOf returns the links of a built-in machine.
func linksOf(t testing.TB, name string) prefer.Links {
	t.Helper()
	m, err := mock.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	session, err := mock.New(m).Open()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := session.Read()
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Links
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// members lists the positions whose bits are set.
func members(mask uint) (out []int) {
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, bits.TrailingZeros(mask))
	}
	return out
}

// oracle caches its results.
type oracle struct {
	l    prefer.Links
	left map[uint][]prefer.Quality
}

func asking(l prefer.Links) oracle { return oracle{l, map[uint][]prefer.Quality{}} }

// naive looks at every group, and for each at everything that it leaves.
func (o oracle) naive(available, must uint, size int) (best []prefer.Quality) {
	for mask := range uint(1 << len(o.l)) {
		if mask&^available != 0 || must&^mask != 0 || bits.OnesCount(mask) != size {
			continue
		}
		if q := o.worth(available, mask); best == nil || compareWorth(q, best) > 0 {
			best = q
		}
	}
	return best
}

// worth returns the qualities of a group and of what it leaves.
func (o oracle) worth(available, group uint) []prefer.Quality {
	rest := available &^ group
	if o.left[rest] == nil {
		o.left[rest] = left(o.l, rest)
	}
	return append([]prefer.Quality{o.l.Of(members(group))}, o.left[rest]...)
}

func compareWorth(a, b []prefer.Quality) int {
	return cmp.Or(a[0].CompareNVLink(b[0]),
		slices.CompareFunc(a[1:], b[1:], prefer.Quality.CompareNVLink),
		a[0].ComparePaths(b[0]),
		slices.CompareFunc(a[1:], b[1:], prefer.Quality.Compare))
}

// left returns the qualities of the best groups of 8, 4 and 2 within the rest, of the best 4 after
// a best pair, and of the whole rest.
func left(l prefer.Links, rest uint) []prefer.Quality {
	out := make([]prefer.Quality, 4, 5)
	for mask := rest; mask != 0; mask = (mask - 1) & rest {
		for n, size := range []int{8, 4, 2} {
			if bits.OnesCount(mask) != size {
				continue
			}
			q := l.Of(members(mask))
			if out[n] == (prefer.Quality{}) || q.Compare(out[n]) > 0 {
				out[n] = q
			}
		}
	}
	if n := bits.OnesCount(rest); n >= 6 && n <= 8 && !alike(l, rest) {
		for mask := rest; mask != 0; mask = (mask - 1) & rest {
			if bits.OnesCount(mask) != 2 ||
				l.Of(members(mask)).CompareNVLink(out[2]) != 0 {
				continue
			}
			if q, _ := naiveBest(l, rest&^mask, 4); out[3] == (prefer.Quality{}) ||
				q.Compare(out[3]) > 0 {
				out[3] = q
			}
		}
	}
	whole := l.Of(members(rest))
	whole.Weakest, whole.Longest = 0, 0
	return append(out, whole)
}

// naiveBest returns the quality of the best group of a size.
func naiveBest(l prefer.Links, of uint, size int) (best prefer.Quality, found bool) {
	for mask := of; mask != 0; mask = (mask - 1) & of {
		if bits.OnesCount(mask) != size {
			continue
		}
		if q := l.Of(members(mask)); !found || q.Compare(best) > 0 {
			best, found = q, true
		}
	}
	return best, found
}

func alike(l prefer.Links, of uint) bool {
	first := -1
	for _, i := range members(of) {
		for _, j := range members(of) {
			if i < j && first < 0 {
				first = l[i][j].NVLink
			}
			if i < j && l[i][j].NVLink != first {
				return false
			}
		}
	}
	return true
}

func maskOf(group []int) (mask uint) {
	for _, i := range group {
		mask |= 1 << i
	}
	return mask
}

func compare(t *testing.T, o oracle, available, must uint, size int) {
	t.Helper()
	got := o.l.Choose(members(available), members(must), size)
	mask := maskOf(got)
	if len(got) != size || mask&^available != 0 || must&^mask != 0 || !slices.IsSorted(got) {
		t.Fatalf("of %v with %v it chooses %v, want %d", members(available), members(must), got,
			size)
	}
	want := o.naive(available, must, size)
	if is := o.worth(available, mask); compareWorth(is, want) != 0 {
		t.Fatalf("of %v with %v it chooses %v: it is, and leaves, %v\nthe best of %d is, and leaves, %v",
			members(available), members(must), got, is, size, want)
	}
}

// The same for 16 GPUs, all free or some taken, for the sizes for which an exhaustive search ends.
func TestAsExhaustiveOf16(t *testing.T) {
	if testing.Short() {
		t.Skip("all groups of 16 take a while")
	}
	for _, name := range mock.Names() {
		l := linksOf(t, name)
		if len(l) != 16 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := asking(l)
			const all = 1<<16 - 1
			for size := 10; size <= 16; size++ {
				compare(t, o, all, 0, size)
			}
			random := rand.New(rand.NewPCG(1, 16))
			for range 40 {
				available := random.UintN(1<<16) | random.UintN(1<<16)
				free := bits.OnesCount(available)
				compare(t, o, available, 0, free-random.IntN(min(free, 6)))
			}
		})
	}
}

// On each machine with up to 8 GPUs, every request on every set of free GPUs gets the result of an
// exhaustive search.
func TestAsExhaustive(t *testing.T) {
	for _, name := range mock.Names() {
		l := linksOf(t, name)
		if len(l) > 8 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := asking(l)
			for available := range uint(1 << len(l)) {
				for size := 1; size <= bits.OnesCount(available); size++ {
					compare(t, o, available, 0, size)
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				available := random.UintN(1 << len(l))
				must := available & random.UintN(1<<len(l))
				if n := bits.OnesCount(available); n > 0 {
					compare(t, o, available, must, max(1, bits.OnesCount(must),
						random.IntN(n+1)))
				}
			}
		})
	}
}

// Machines that nobody builds: random links.
func TestAsExhaustiveWithAnyLinks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		l := anyLinks(random, 1+random.IntN(9))
		available := random.UintN(1 << len(l))
		must := available & random.UintN(1<<len(l)) & random.UintN(1<<len(l))
		if n := bits.OnesCount(available); n > 0 {
			compare(t, asking(l), available, must, max(1, bits.OnesCount(must), random.IntN(n+1)))
		}
	}
}

func anyLinks(random *rand.Rand, n int) prefer.Links {
	l := make(prefer.Links, n)
	for i := range l {
		l[i] = make([]prefer.Link, n)
		for j := range i {
			l[i][j] = prefer.Link{NVLink: 25 * random.IntN(3), Path: prefer.Path(random.IntN(6))}
			l[j][i] = l[i][j]
		}
	}
	return l
}

// Whatever is requested first, the largest group requested afterwards is as good as if it had come
// first.
func TestLaterGroupsStayGood(t *testing.T) {
	for _, name := range mock.Names() {
		l := linksOf(t, name)
		for _, sizes := range [][]int{{2, 2, 4}, {1, 1, 2, 4}, {1, 2, 1, 4}, {1, 1, 1, 1, 4},
			{2, 1, 1, 4}, {2, 2, 4, 8}, {4, 4, 8}, {1, 1, 2, 4, 8}, {2, 4, 2, 8}} {
			largest, sum := slices.Max(sizes), 0
			for _, size := range sizes {
				sum += size
			}
			if sum > len(l) {
				continue
			}
			t.Run(fmt.Sprint(name, sizes), func(t *testing.T) {
				free := upTo(len(l))
				var got []int
				for _, size := range sizes {
					got = l.Choose(free, nil, size)
					free = slices.DeleteFunc(free, func(i int) bool { return slices.Contains(got, i) })
				}
				first := l.Choose(upTo(len(l)), nil, largest)
				if l.Of(got) != l.Of(first) {
					t.Errorf("the last %d are %v: %v; a first request would get %v: %v", largest,
						got, l.Of(got), first, l.Of(first))
				}
			})
		}
	}
}

// An impossible request gets nil.
func TestNothingToChoose(t *testing.T) {
	l := linksOf(t, "dgxh100")
	for _, c := range []struct {
		available, must []int
		size            int
	}{
		{nil, nil, 1}, {upTo(8), nil, 0}, {upTo(8), nil, -1}, {upTo(4), nil, 5},
		{upTo(8), upTo(3), 2},
	} {
		if got := l.Choose(c.available, c.must, c.size); got != nil {
			t.Errorf("%v: %v", c, got)
		}
	}
	if got := l.Choose([]int{3, 3, 1, 1}, []int{3}, 2); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("what is given twice counts once: %v", got)
	}
}

// Beyond the limits of the search there is still an answer, no worse than the first GPUs.
func TestManyGPUsThatAllDiffer(t *testing.T) {
	l := anyLinks(rand.New(rand.NewPCG(5, 6)), 64)
	for _, size := range []int{1, 2, 8, 31, 63, 64} {
		got := l.Choose(upTo(64), []int{17}, size)
		if len(got) != size || !slices.Contains(got, 17) {
			t.Fatalf("of 64 it chooses %v, want %d with 17", got, size)
		}
		first := append([]int{17}, upTo(size)...)
		if !slices.Contains(first[1:], 17) {
			first = first[:size]
		} else {
			first = first[1:]
		}
		if l.Of(got).Compare(l.Of(first)) < 0 {
			t.Errorf("%v is worse than %v", got, first)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, name := range []string{"dgxh100", "dgx1", "dgx2", "pcie16"} {
		l := linksOf(b, name)
		for _, size := range []int{2, 4, 8} {
			b.Run(fmt.Sprintf("%s/%d-of-%d", name, size, len(l)), func(b *testing.B) {
				for b.Loop() {
					l.Choose(upTo(len(l)), nil, size)
				}
			})
			if len(l) > 8 && size > 2 {
				continue // that search takes 15 s
			}
			b.Run(fmt.Sprintf("%s/%d-of-%d/exhaustive", name, size, len(l)), func(b *testing.B) {
				for b.Loop() {
					asking(l).naive(1<<len(l)-1, 0, size)
				}
			})
		}
	}
	l := anyLinks(rand.New(rand.NewPCG(7, 8)), 16)
	for _, links := range []string{"any-links", "any-paths"} {
		for _, size := range []int{2, 4, 8} {
			b.Run(fmt.Sprintf("%s/%d-of-16", links, size), func(b *testing.B) {
				for b.Loop() {
					l.Choose(upTo(16), nil, size)
				}
			})
		}
		for i := range l { // now without NVLinks
			for j := range l[i] {
				l[i][j].NVLink = 0
			}
		}
	}
}
