package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Time       time.Time
	Action     string
	Package    string
	ImportPath string // of a build
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// key names a test; Test is empty for what a package says itself.
type key struct{ Package, Test string }

// report follows the tests. It holds the output of tests that may still fail.
type report struct {
	out     io.Writer
	verbose bool

	output  map[key]*strings.Builder
	at      string            // package of the last printed line; empty: no line of a test
	running map[key]time.Time // since when; tests that have no parent
	took    map[key]time.Duration
	tests   int // that have ended, without subtests
	left    map[string]bool
	bad     map[string]bool // packages of which a test has failed
	done    int             // packages
	failed  bool
	names   []string // of failed tests without subtests, and of packages that failed without one
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{
		out: out, verbose: verbose,
		output: map[key]*strings.Builder{}, running: map[key]time.Time{},
		took: map[key]time.Duration{}, left: map[string]bool{}, bad: map[string]bool{},
	}
}

// line takes a line of go test's. A line that is no event is printed.
func (r *report) line(line string) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		io.WriteString(r.out, line)
		r.at = ""
		return
	}
	switch e.Action {
	case "build-output":
		io.WriteString(r.out, e.Output)
		r.at = ""
	case "build-fail":
		r.failed = true
		r.names = append(r.names, "build of "+path.Base(e.ImportPath))
	case "start":
		r.left[e.Package] = true
	case "output":
		r.says(e)
	case "run", "cont":
		if !isSub(e.Test) {
			r.running[key{e.Package, e.Test}] = e.Time
		}
	case "pause": // it waits for its turn
		delete(r.running, key{e.Package, e.Test})
	case "pass", "fail", "skip":
		r.failed = r.failed || e.Action == "fail"
		if e.Test == "" {
			r.packageEnds(e)
		} else {
			r.testEnds(e)
		}
	}
}

func isSub(test string) bool { return strings.Contains(test, "/") }

// says keeps what a test or a package says until it ends.
func (r *report) says(e event) {
	k := key{e.Package, e.Test}
	if r.verbose {
		if !isFrame(e.Output) {
			io.WriteString(r.out, e.Output)
		}
		return
	}
	b := r.output[k]
	if b == nil {
		b = &strings.Builder{}
		r.output[k] = b
	}
	b.WriteString(e.Output)
}

// isFrame reports whether go test prints the line with -v only.
func isFrame(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, frame := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- PASS"} {
		if strings.HasPrefix(line, frame) {
			return true
		}
	}
	return line == "PASS\n"
}

// testEnds prints what a failed test said. Subtests end before their parent does, and what they said
// is theirs alone, so that it is printed once, above what the parent said.
func (r *report) testEnds(e event) {
	k := key{e.Package, e.Test}
	if e.Action == "fail" {
		r.print(k)
	}
	delete(r.output, k)
	if isSub(e.Test) {
		return
	}
	if e.Action == "fail" {
		r.names = append(r.names, e.Test)
		r.bad[e.Package] = true
	}
	r.tests++
	r.took[k] = time.Duration(e.Elapsed * float64(time.Second))
	delete(r.running, k)
}

// print writes what a test or a package said, without what go test prints with -v only. Packages are
// tested at the same time: a test's lines follow one that names the package, as those of a build do.
func (r *report) print(k key) {
	said := r.output[k]
	if said == nil {
		return
	}
	if k.Test != "" && r.at != k.Package {
		fmt.Fprintln(r.out, "#", k.Package)
		r.at = k.Package
	}
	for line := range strings.Lines(said.String()) {
		if !isFrame(line) {
			io.WriteString(r.out, line)
		}
	}
}

// packageEnds prints what go test prints at a package's end: its last line, and if it failed, all that
// it said itself and what tests said that have not ended.
func (r *report) packageEnds(e event) {
	delete(r.left, e.Package)
	r.done++
	if e.Action == "fail" {
		if !r.bad[e.Package] {
			r.names = append(r.names, path.Base(e.Package))
		}
		for _, k := range r.of(e.Package) {
			r.print(k)
		}
	} else if b := r.output[key{e.Package, ""}]; b != nil {
		lines := slices.Collect(strings.Lines(b.String()))
		io.WriteString(r.out, lines[len(lines)-1])
	}
	r.at = ""
	r.forget(e.Package)
}

// of lists what was kept of a package: its tests, then itself.
func (r *report) of(pkg string) []key {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(r.output)), func(k key) bool { return k.Package != pkg })
	slices.SortFunc(keys, func(a, b key) int {
		if (a.Test == "") != (b.Test == "") {
			return cmp.Compare(len(b.Test), len(a.Test))
		}
		return strings.Compare(a.Test, b.Test)
	})
	return keys
}

func (r *report) forget(pkg string) {
	for _, k := range r.of(pkg) {
		delete(r.output, k)
	}
	maps.DeleteFunc(r.running, func(k key, _ time.Time) bool { return k.Package == pkg })
}

// end prints what packages said that go test did not end.
func (r *report) end() {
	for _, pkg := range slices.Sorted(maps.Keys(r.left)) {
		r.failed = true
		r.packageEnds(event{Action: "fail", Package: pkg})
		fmt.Fprintf(r.out, "FAIL\t%s\tdid not end\n", pkg)
	}
	if r.done == 0 {
		r.failed = true
		fmt.Fprintln(r.out, "FAIL: no package was tested")
	}
}

// progress is a line that says how far the tests are, and which have run longest by now.
func (r *report) progress(tier string, now, began time.Time, usually time.Duration) string {
	line := fmt.Sprintf("   %s: %d tests of %d packages in %s", tier, r.tests, r.done, span(now.Sub(began)))
	if usually > 0 {
		line += ", usually " + span(usually)
	}
	keys := slices.SortedFunc(maps.Keys(r.running), func(a, b key) int {
		return cmp.Or(r.running[a].Compare(r.running[b]), strings.Compare(a.Test, b.Test))
	})
	for i, k := range keys[:min(len(keys), 3)] {
		line += fmt.Sprintf("%s%s %s", []string{"; now ", ", ", ", "}[i], k.Test, span(now.Sub(r.running[k])))
	}
	return line
}

// longest lists the tests that took longest, at most n. A test that runs in parallel with others
// has its time from its start to its end, less what it waited for its turn.
func (r *report) longest(n int) []string {
	keys := slices.SortedFunc(maps.Keys(r.took), func(a, b key) int {
		return cmp.Or(cmp.Compare(r.took[b], r.took[a]),
			strings.Compare(a.Package, b.Package), strings.Compare(a.Test, b.Test))
	})
	var lines []string
	for _, k := range keys[:min(n, len(keys))] {
		lines = append(lines, fmt.Sprintf("%8.2f s  %s  %s", r.took[k].Seconds(), k.Package, k.Test))
	}
	return lines
}

// span is a time to the second.
func span(d time.Duration) string { return d.Round(time.Second).String() }
