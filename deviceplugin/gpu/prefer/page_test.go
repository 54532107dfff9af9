package prefer_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/internal/goldentest"
)

// The page has the current choices.
func TestPageHasTheChoices(t *testing.T) {
	const file, begin, end = "../../../docs/gpu-plugin.md", "<!-- choices -->\n", "<!-- /choices -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no %s", file, end)
	}
	goldentest.Compare(t, file, before+begin+choices(t)+end+after)
}

func choices(t *testing.T) string {
	var out strings.Builder
	out.WriteString("| machine | first 2 | next 2 | then 4 | these 4 | best 4 of the empty machine |\n" +
		"|---|---|---|---|---|---|\n")
	for _, name := range mock.Names() {
		l := linksOf(t, name)
		if len(l) < 2+2+4 {
			continue
		}
		free := upTo(len(l))
		var last []int
		out.WriteString("| " + name)
		for _, size := range []int{2, 2, 4} {
			last = l.Choose(free, nil, size)
			free = slices.DeleteFunc(free, func(i int) bool { return slices.Contains(last, i) })
			fmt.Fprintf(&out, " | %s", strings.Trim(fmt.Sprint(last), "[]"))
		}
		best := naiveFour(t, name)
		fmt.Fprintf(&out, " | %s | %s |\n", l.Of(last), best)
	}
	return out.String()
}

// naiveFour returns the quality of the best four GPUs, by an exhaustive search.
func naiveFour(t *testing.T, name string) string {
	l := linksOf(t, name)
	best, _ := naiveBest(l, 1<<len(l)-1, 4)
	return best.String()
}
