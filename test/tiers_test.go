package test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The pages say of each tier of tests the time that test/run.sh says when it begins.
func TestTimesOfTiers(t *testing.T) {
	t.Parallel()
	times := func(file, pattern string) (out []string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			out = append(out, match[1]+" "+match[2])
		}
		slices.Sort(out)
		return out
	}
	want := times("run.sh", `\[([a-z]+)\]=([0-9]+)m`)
	if len(want) < 7 {
		t.Fatalf("run.sh has the tiers %v", want)
	}
	if diff := cmp.Diff(want, times("../README.md", "(?m)^\\| `make ([a-z]+)` \\|.* ([0-9]+) min \\|$")); diff != "" {
		t.Error("README.md says other times than run.sh:", diff)
	}
	want = slices.DeleteFunc(want, func(tier string) bool { return strings.HasPrefix(tier, "guests ") })
	if diff := cmp.Diff(want, times("../CONTRIBUTING.md",
		"(?m)`make (unit|sim|containerd|walks|numa|cluster)` \\|.*?([0-9]+) min")); diff != "" {
		t.Error("CONTRIBUTING.md says other times than run.sh:", diff)
	}
}
