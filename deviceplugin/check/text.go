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
	// Width is how wide lines may be.
	Width int
	// Long has everything of checks that passed too.
	Long  bool
	group string
}

// marks are verdicts in four letters.
var marks = map[Verdict]string{Passed: "ok", Warning: "warn", Failed: "FAIL", Skipped: "-"}

// Result writes one result: a line, and of what is wrong all that is known.
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

// indented writes text behind a title, and its further lines below its first.
func (t *Text) indented(b *strings.Builder, title, text string) {
	indent := "\n" + strings.Repeat(" ", len(title))
	wrapped := ansi.Wordwrap(text, max(t.Width-len(title), 30), "")
	b.WriteString(title + strings.ReplaceAll(wrapped, "\n", indent) + "\n")
}
