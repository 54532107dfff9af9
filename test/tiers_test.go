package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page says of each tier of tests the time that test/run.sh says when it begins.
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
	if diff := cmp.Diff(want, times("../CONTRIBUTING.md", "(?m)^\\| `make ([a-z]+)` \\|.* ([0-9]+) min \\|$")); diff != "" {
		t.Error("CONTRIBUTING.md says other times than run.sh:", diff)
	}
}

// Each row of the table of pauses names tests that there are.
func TestPausesAreTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What is tried again")
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| [^|]+ \| (`+"`"+`.+`+"`"+`) \|$`).FindAllStringSubmatch(table, -1)
	if len(rows) < 20 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	var code strings.Builder
	for _, root := range []string{"../agent", "../cri", "../deviceplugin"} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				var text []byte
				text, err = os.ReadFile(path)
				code.Write(text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		for name := range strings.SplitSeq(row[1], ", ") {
			if !strings.Contains(code.String(), "\nfunc "+strings.Trim(name, "`")+"(") {
				t.Errorf("there is no test %s", name)
			}
		}
	}
}
