package explain

import (
	"strings"
	"unicode/utf8"
)

// hang is how much further the rest of a wrapped line stands in than its beginning.
const hang = "  "

// Wrap breaks lines of the text that are wider than width between words. The rest of a line stands
// below its beginning, further in. Words that are wider than that are left whole.
func Wrap(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		content, ended := strings.CutSuffix(line, "\n")
		wrapLine(&b, content, width)
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func wrapLine(b *strings.Builder, line string, width int) {
	if utf8.RuneCountInString(line) <= width {
		b.WriteString(line)
		return
	}
	words := strings.TrimLeft(line, " ")
	margin := line[:len(line)-len(words)]
	b.WriteString(margin)
	used, first := len(margin), true
	if margin += hang; strings.HasPrefix(words, "- ") {
		words = words[2:]
		b.WriteString("- ")
		used += 2
	}
	for word := range strings.SplitSeq(words, " ") {
		size := utf8.RuneCountInString(word)
		switch {
		case first:
		case used+1+size > width:
			b.WriteString("\n" + margin)
			used = len(margin)
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used, first = used+size, false
	}
}
