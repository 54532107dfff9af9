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
	"unicode"
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

// pagesOf returns the texts of all pages, by their paths.
func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	decisions, err := filepath.Glob("../docs/decisions/*.md")
	if err != nil || len(decisions) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	out := map[string]string{}
	for _, page := range slices.Concat(pages, decisions,
		[]string{"../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../SECURITY.md"}) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		out[page] = string(text)
	}
	return out
}

// TestLinesOfPages: the lines of a page have less than 120 columns, except in tables and code blocks.
func TestLinesOfPages(t *testing.T) {
	for page, text := range pagesOf(t) {
		for line := range strings.Lines(codeBlock.ReplaceAllString(text, "")) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n >= 120 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s: %d columns: %s", filepath.Base(page), n, line)
			}
		}
	}
}

// TestLinksOfPages: what a page links to in this repository is there.
func TestLinksOfPages(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)]*))?\)`)
	for page, text := range pagesOf(t) {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			to := page
			if match[1] != "" {
				to = filepath.Join(filepath.Dir(page), match[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(page), match[1], err)
			} else if match[2] != "" && filepath.Ext(to) == ".md" && !slices.Contains(headings(t, to), match[2]) {
				t.Errorf("%s links to #%s, which is no heading of %s", filepath.Base(page), match[2], filepath.Base(to))
			}
		}
	}
}

// headings returns the anchors that a page's headings have where it is shown.
func headings(t *testing.T, page string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	kept := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}
	code := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		level, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !code && level != "" && strings.Trim(level, "#") == "" {
			out = append(out, strings.Map(kept, title))
		}
	}
	return out
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

// TestFloors: the page draws the folders as floors, and no room imports one of a floor above its own.
func TestFloors(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawn, _ := strings.Cut(string(page), "\n## Floors\n")
	_, drawn, _ = strings.Cut(drawn, "```\n")
	drawn, _, _ = strings.Cut(drawn, "```")
	level := map[string]int{} // of each folder, from the top down
	for i, line := range strings.Split(strings.TrimSpace(drawn), "\n") {
		words := strings.Fields(line)
		for n, word := range words {
			if info, err := os.Stat(filepath.Join("..", word)); err == nil && info.IsDir() {
				level[word] = i
			} else if rest := words[n:]; strings.HasPrefix(words[0], "agent/") {
				for _, room := range rest {
					if _, err := os.Stat(filepath.Join("..", words[0], room)); err != nil {
						t.Errorf("docs/architecture.md draws %s in %s: %v", room, words[0], err)
					}
				}
				break
			}
		}
	}
	floorOf := func(room string) (floor string) {
		for folder := range level {
			if (room == folder || strings.HasPrefix(room, folder+"/")) && len(folder) > len(floor) {
				floor = folder
			}
		}
		return floor
	}
	const module = "github.com/numalet/numalet/"
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		room := strings.TrimPrefix(words[0], module)
		if strings.HasSuffix(room, "test") || strings.HasPrefix(room, "test/") || strings.HasPrefix(room, "examples") {
			continue
		}
		from := floorOf(room)
		if from == "" || strings.HasPrefix(room, "agent/") && from == "agent" {
			t.Errorf("docs/architecture.md draws no floor of %s", room)
		}
		for _, path := range words[1:] {
			imported, ours := strings.CutPrefix(path, module)
			if to := floorOf(imported); ours && to != "" && level[to] < level[from] {
				t.Errorf("%s imports %s, which is on a floor above", room, imported)
			}
		}
	}
}
