package check

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Text writes results for people, as they come.
type Text struct {
	W io.Writer
	// Width bounds the width of lines.
	Width int
	// Long also writes all texts of passed checks.
	Long  bool
	group string
}

// marks are short forms of verdicts.
var marks = map[Verdict]string{Passed: "ok", Warning: "warn", Failed: "FAIL", Skipped: "-"}

// Result writes one result: a line, and all texts if something is wrong.
func (t *Text) Result(r Result) error {
	var b strings.Builder
	if r.Group != t.group {
		t.group = r.Group
		fmt.Fprintln(&b, r.Group)
	}
	t.indented(&b, fmt.Sprintf("  %-5s %-24s", marks[r.Verdict], r.Name), r.Happened)
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

// indented writes a title and a text whose further lines are indented below the first.
func (t *Text) indented(b *strings.Builder, title, text string) {
	indent := "\n" + strings.Repeat(" ", len(title))
	wrapped := ansi.Wordwrap(text, max(t.Width-len(title), 30), "")
	b.WriteString(title + strings.ReplaceAll(wrapped, "\n", indent) + "\n")
}
