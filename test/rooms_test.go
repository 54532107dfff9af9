package test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestRooms: the table of rooms in docs/architecture.md names every package that is no test, and no
// other.
func TestRooms(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n## Rooms\n")
	if !ok {
		t.Fatal("docs/architecture.md has no rooms")
	}
	const module = "github.com/numalet/numalet"
	out, err := exec.Command("go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var there []string
	for _, line := range strings.Fields(string(out)) {
		room := strings.TrimPrefix(line, module+"/")
		if path.Base(room) == "testing" || strings.HasSuffix(room, "test") || strings.HasPrefix(room, "test/") {
			continue
		}
		there = append(there, room)
	}
	named := roomsOf(table, there)
	for _, room := range there {
		if !slices.Contains(named, room) && !strings.HasPrefix(room, "cmd/numalet-lab/") {
			t.Errorf("docs/architecture.md does not name %s among the rooms", room)
		}
	}
	for _, room := range named {
		if !slices.Contains(there, room) {
			t.Errorf("docs/architecture.md names %s among the rooms, which is not there", room)
		}
	}
}

// TestLinesOfPages: the lines of a page have less than 120 columns, except in tables and code blocks.
func TestLinesOfPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(codeBlock.ReplaceAllString(string(text), "")) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n >= 120 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s: %d columns: %s", filepath.Base(page), n, line)
			}
		}
	}
}

// roomsOf returns the rooms that the first columns of a table name. Of them ".../x" is below the last
// whole name, or beside it.
func roomsOf(table string, there []string) (out []string) {
	last := ""
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := strings.TrimSuffix(match[1], "/...")
			if rest, relative := strings.CutPrefix(name, ".../"); relative {
				if name = path.Join(last, rest); !slices.Contains(there, name) {
					name = path.Join(path.Dir(last), rest)
				}
			} else {
				last = name
			}
			out = append(out, name)
		}
	}
	return out
}
