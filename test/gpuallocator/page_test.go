package gpuallocator_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/gpu-choices.md")

var machines = []string{"dgx1", "dgxa100", "dgxh100", "dgxb200", "h100nvl8", "pcie8"}

// The page has what both choose, and what both come to, as it is.
func TestPage(t *testing.T) {
	const file = "../../docs/gpu-choices.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(page)
	for mark, table := range map[string]string{
		"sequences": sequences(t), "questions": questions(t), "workload": workload(t),
	} {
		before, rest, _ := strings.Cut(want, "<!-- "+mark+" -->\n")
		_, after, found := strings.Cut(rest, "<!-- /"+mark+" -->")
		if !found {
			t.Fatalf("%s has no place for %s", file, mark)
		}
		want = before + "<!-- " + mark + " -->\n" + table + "<!-- /" + mark + " -->" + after
	}
	if want == string(page) {
		return
	}
	if !*rewrite {
		t.Fatalf("the tables are others now: run this test with -rewrite\n%s", want)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sequences is a table of pods that come to an empty machine, for what the two end with differently.
func sequences(t *testing.T) string {
	var out strings.Builder
	out.WriteString("| machine | pods ask for | numalet gives | go-gpuallocator gives |\n" +
		"|---|---|---|---|\n")
	for _, name := range machines {
		m, same := open(t, name), []string(nil)
		for _, sizes := range [][]int{{1}, {2}, {4}, {8}, {1, 2, 4}, {1, 1, 2, 4}, {2, 2, 4},
			{2, 4, 2}, {4, 2, 2}} {
			asked := strings.Trim(fmt.Sprint(sizes), "[]")
			we, they := m.serve(ours, sizes), m.serve(theirs, sizes)
			if we == they {
				same = append(same, asked)
				continue
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", name, asked, we, they)
		}
		fmt.Fprintf(&out, "| %s | %s | the same | the same |\n", name, strings.Join(same, "; "))
	}
	return out.String()
}

// serve describes what pods get, how good that is, and what is left of an empty machine then.
func (m machine) serve(pick allocator, sizes []int) string {
	free := upTo(len(m.links))
	var parts []string
	for _, size := range sizes {
		got := pick(m, free, size)
		free = without(free, got)
		text := strings.Trim(fmt.Sprint(got), "[]")
		if size > 1 {
			text += " (" + m.links.Of(got).String() + ")"
		}
		parts = append(parts, text)
	}
	for _, size := range []int{4, 2} {
		if best, found := m.best(free, size); found {
			parts = append(parts, fmt.Sprintf("leaves a %d of %s", size, best))
		}
	}
	return strings.Join(parts, "; ")
}

// questions counts whose group is better for everything that may be free.
func questions(t *testing.T) string {
	var out strings.Builder
	out.WriteString("| machine | questions | the same | better NVLinks inside | better NVLinks left | " +
		"shorter ways over PCIe | more left |\n|---|---|---|---|---|---|---|\n")
	for _, name := range machines {
		m := open(t, name)
		asked, same := 0, 0
		var better, worse [4]int
		for mask := range uint(1 << len(m.links)) {
			free := slices.DeleteFunc(upTo(len(m.links)),
				func(i int) bool { return mask&(1<<i) == 0 })
			for _, size := range []int{1, 2, 4, 8} {
				if size > len(free) {
					continue
				}
				asked++
				at, by := m.differ(free, ours(m, free, size), theirs(m, free, size))
				switch {
				case by == 0:
					same++
				case by > 0:
					better[at]++
				default:
					worse[at]++
				}
			}
		}
		if worse[0] > 0 {
			t.Errorf("%s: in %d of %d questions go-gpuallocator finds better NVLinks", name,
				worse[0], asked)
		}
		fmt.Fprintf(&out, "| %s | %d | %d |", name, asked, same)
		for at := range better {
			fmt.Fprintf(&out, " %d / %d |", better[at], worse[at])
		}
		out.WriteString("\n")
	}
	return out.String()
}

// differ returns the first criterion by which two groups of free GPUs differ, and which group is
// better: NVLinks, remaining NVLinks, ways over PCIe, remaining ones.
func (m machine) differ(free, a, b []int) (at, by int) {
	if slices.Equal(a, b) {
		return 0, 0
	}
	left := func(compare func(a, b prefer.Quality) int) int {
		for _, size := range []int{8, 4, 2} {
			mine, _ := m.best(without(free, a), size)
			other, _ := m.best(without(free, b), size)
			if by := compare(mine, other); by != 0 {
				return by
			}
		}
		return 0
	}
	qa, qb := m.links.Of(a), m.links.Of(b)
	for at, by := range []int{qa.CompareNVLink(qb), left(prefer.Quality.CompareNVLink),
		qa.ComparePaths(qb), left(prefer.Quality.Compare)} {
		if by != 0 {
			return at, by
		}
	}
	return 0, 0
}

// means has the averages of groups of one size.
type means struct{ groups, weakest, nvlink, paths int }

func (a means) of(sum int) string {
	return fmt.Sprintf("%.1f", float64(sum)/float64(max(1, a.groups)))
}

// workload is a table of what pods get that come and go; both are asked for the same ones.
func workload(t *testing.T) string {
	var out strings.Builder
	out.WriteString("| machine | GPUs | weakest NVLink: numalet | theirs | all NVLinks: numalet | " +
		"theirs | PCIe ways: numalet | theirs |\n" + "|" + strings.Repeat("---|", 8) + "\n")
	for _, name := range machines {
		m := open(t, name)
		we, they := m.live(ours), m.live(theirs)
		for _, size := range []int{2, 4} {
			a, b := we[size], they[size]
			if a.groups != b.groups || a.groups == 0 {
				t.Fatalf("%s: %d and %d pods got %d GPUs", name, a.groups, b.groups, size)
			}
			// A few of these thousands have another outcome by chance.
			if a.weakest*20 < b.weakest*19 || a.nvlink < b.nvlink {
				t.Errorf("%s: pods with %d GPUs get better NVLinks by go-gpuallocator: %+v, %+v",
					name, size, a, b)
			}
			fmt.Fprintf(&out, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", name, size,
				a.of(a.weakest), b.of(b.weakest), a.of(a.nvlink), b.of(b.nvlink),
				a.of(a.paths), b.of(b.paths))
		}
	}
	return out.String()
}

// live lets pods come to the machine and go, the larger ones sooner. A pod for which there are too
// few GPUs is not asked about again.
func (m machine) live(pick allocator) map[int]means {
	const steps = 500_000
	random := rand.New(rand.NewPCG(1, 2))
	free, ends, out := upTo(len(m.links)), map[int][][]int{}, map[int]means{}
	for step := range steps {
		for _, group := range ends[step] {
			free = append(free, group...)
		}
		delete(ends, step)
		size := []int{1, 1, 2, 2, 4, 4, 8}[random.IntN(7)]
		end := step + 1 + random.IntN(48/size)
		if size > len(free) {
			continue
		}
		slices.Sort(free)
		got := pick(m, free, size)
		free = without(free, got)
		ends[end] = append(ends[end], got)
		q, sum := m.links.Of(got), out[size]
		out[size] = means{sum.groups + 1, sum.weakest + q.Weakest, sum.nvlink + q.NVLink,
			sum.paths + q.Paths}
	}
	return out
}
