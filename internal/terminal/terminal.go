// Package terminal says how wide text for people may be, breaks it there, and quotes words for shells.
package terminal

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// usual is the width of a terminal that does not tell it.
const usual = 80

// Width is how many columns the terminal has that w is; 0: it is none.
func Width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 2 {
		return usual
	}
	return columns
}

// hang is how much further the rest of a wrapped line stands in than its beginning.
const hang = 2

// Wrap breaks lines of the text that are wider than width between words. The rest of a line stands
// below its beginning, further in. Words that are wider than that are left whole.
func Wrap(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		content, ended := strings.CutSuffix(line, "\n")
		words := strings.TrimLeft(content, " ")
		margin := len(content) - len(words)
		if words = strings.TrimPrefix(words, "- "); utf8.RuneCountInString(content) > width {
			start := len(content) - len(words)
			content = content[:start] + Fold(words, start, margin+hang, width)
		}
		b.WriteString(content)
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Fold breaks one line, of which start columns are there already; what follows begins at margin.
func Fold(line string, start, margin, width int) string {
	var b strings.Builder
	used := start
	for i, word := range strings.Split(line, " ") {
		size := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+size > width:
			b.WriteString("\n" + strings.Repeat(" ", margin))
			used = margin
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += size
	}
	return b.String()
}
