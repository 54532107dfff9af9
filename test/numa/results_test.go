package numa_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"text/tabwriter"
)

// event is a line of test2json (go doc test2json).
type event struct {
	Action  string
	Test    string
	Elapsed float64
	Output  string
	Key     string
	Value   string
}

// result is one test of the guest.
type result struct {
	name    string // with the names of the tests it belongs to: "cgroups/TestHost/legacy"
	outcome string // pass, fail or skip; "" when it did not end
	seconds float64
	output  strings.Builder
	// seen has the test's lines for the table.
	seen []string
}

// results are the tests in the order they began.
type results struct {
	list   []*result
	byName map[string]*result
	// other is output that belongs to no test: a panic, for example.
	other strings.Builder
}

// read takes the output of test binaries, one after the other, each after a line "package NAME".
func read(from io.Reader) (*results, error) {
	r := &results{byName: map[string]*result{}}
	convert := exec.Command("go", "tool", "test2json", "-t")
	convert.Stderr = os.Stderr
	convert.Stdin = from
	out, err := convert.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := convert.Start(); err != nil {
		return r, err
	}
	pkg := ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.other.Write(lines.Bytes())
			continue
		}
		if name, ok := strings.CutPrefix(e.Output, "package "); ok && e.Test == "" {
			pkg = strings.TrimSpace(name)
			continue
		}
		r.add(pkg, e)
	}
	return r, errors.Join(lines.Err(), convert.Wait())
}

func (r *results) add(pkg string, e event) {
	if e.Test == "" {
		r.other.WriteString(e.Output)
		return
	}
	name := pkg + "/" + e.Test
	at := r.byName[name]
	if at == nil {
		at = &result{name: name}
		r.byName[name] = at
		r.list = append(r.list, at)
	}
	switch e.Action {
	case "pass", "fail", "skip":
		at.outcome, at.seconds = e.Action, e.Elapsed
	case "output":
		at.output.WriteString(e.Output)
	case "attr":
		at.seen = append(at.seen, e.Value)
	}
}

// print prints the table.
func (r *results) print(to io.Writer, title string) {
	fmt.Fprintf(to, "\n%s\n", title)
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "check\tresult\tseconds\twhat the kernel shows")
	for _, one := range r.list {
		seen := append([]string{""}, one.seen...)
		if len(one.seen) > 0 {
			seen = one.seen
		}
		fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\n", one.name, one.said(), one.seconds, seen[0])
		for _, more := range seen[1:] {
			fmt.Fprintf(table, "\t\t\t%s\n", more)
		}
	}
	table.Flush()
}

func (r *result) said() string {
	if r.outcome == "" {
		return "did not end"
	}
	return r.outcome
}

// subtests fails and skips as the guest's tests did.
func (r *results) subtests(t *testing.T) {
	if len(r.list) == 0 {
		t.Errorf("no test ran in the guest; it wrote:\n%s", r.other.String())
	}
	failed := false
	for _, one := range r.list {
		t.Run(one.name, func(t *testing.T) {
			switch one.outcome {
			case "pass":
			case "skip":
				t.Skip(one.output.String())
			default:
				failed = true
				t.Errorf("%s:\n%s", one.said(), one.output.String())
			}
		})
	}
	if failed {
		t.Logf("beside the tests the guest wrote:\n%s", tail(r.other.String(), 100))
	}
}
