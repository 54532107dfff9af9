package check

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Text writes results for people, as they come.
type Text struct {
	W io.Writer
	// Width bounds the width of lines.
	Width int
	// Long also writes all texts of passed checks, and a line for each check that is not made.
	Long bool

	resource, group string // of the last result
}

// marks are short forms of verdicts.
var marks = map[Verdict]string{Passed: "ok", Warning: "warn", Failed: "FAIL", Skipped: "-"}

// Result writes one result: a line, and all texts if something is wrong. End says what is not made.
func (t *Text) Result(r Result) error {
	if r.Verdict == Skipped && !t.Long {
		return nil
	}
	var b strings.Builder
	if r.Resource != t.resource {
		t.resource, t.group = r.Resource, ""
		fmt.Fprintln(&b, r.Resource)
	}
	if r.Group != t.group {
		t.group = r.Group
		fmt.Fprintln(&b, r.Group)
	}
	t.line(&b, r)
	if t.Long || r.Verdict == Failed || r.Verdict == Warning {
		for _, part := range []struct{ what, text string }{
			{"did", r.Did}, {"expected", r.Expected}, {"why", r.Why}, {"hint", r.Hint},
		} {
			t.indented(&b, fmt.Sprintf("        %-10s", part.what), part.text)
		}
	}
	_, err := io.WriteString(t.W, b.String())
	return err
}

func (t *Text) line(b *strings.Builder, r Result) {
	t.indented(b, fmt.Sprintf("  %-5s %-24s", marks[r.Verdict], r.Name), r.Happened)
}

// End writes what a reader looks for after many lines: the checks that are not made, by their
// reasons, those that failed, and the summary.
func (t *Text) End(r Report) error {
	var b strings.Builder
	if !t.Long {
		t.notMade(&b, r)
	}
	if !r.Good() {
		fmt.Fprintln(&b, "failed")
	}
	for _, result := range r.Results {
		if result.Verdict != Failed {
			continue
		}
		if len(r.Resources) > 1 {
			fmt.Fprintf(&b, "  %s\n", result.Resource)
		}
		t.line(&b, result)
		t.indented(&b, fmt.Sprintf("        %-10s", "hint"), result.Hint)
	}
	fmt.Fprintln(&b, r.Summary())
	_, err := io.WriteString(t.W, b.String())
	return err
}

// notMade writes the checks that were not made, once for each reason.
func (t *Text) notMade(b *strings.Builder, r Report) {
	var reasons []string
	names := map[string][]string{}
	for _, result := range r.Results {
		if result.Verdict != Skipped {
			continue
		}
		if names[result.Happened] == nil {
			reasons = append(reasons, result.Happened)
		}
		if !slices.Contains(names[result.Happened], result.Name) {
			names[result.Happened] = append(names[result.Happened], result.Name)
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintln(b, "not made")
	}
	for _, reason := range reasons {
		t.indented(b, "  -     ", strings.Join(names[reason], ", ")+": "+
			strings.TrimPrefix(reason, "not made, "))
	}
}

// indented writes a title and a text whose further lines are indented below the first.
func (t *Text) indented(b *strings.Builder, title, text string) {
	indent := "\n" + strings.Repeat(" ", len(title))
	wrapped := ansi.Wordwrap(text, max(t.Width-len(title), 30), "")
	b.WriteString(title + strings.ReplaceAll(wrapped, "\n", indent) + "\n")
}
