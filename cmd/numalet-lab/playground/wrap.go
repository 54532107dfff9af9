package playground

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// wrap breaks a text into lines of width columns, at blanks only, so that a name can be searched
// for and a path copied. It cuts a word that is wider than a line. If width is 0, it returns one
// line.
func wrap(text string, width int) []string { return wrapWith(text, width, "") }

// wrapWith is wrap with more at the end of each line but the last.
func wrapWith(text string, width int, more string) []string {
	if width <= 0 || lipgloss.Width(text) <= width {
		return []string{text}
	}
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case lipgloss.Width(line)+1+lipgloss.Width(word)+lipgloss.Width(more) <= width:
			line += " " + word
		default:
			out = append(out, line+more)
			line = word
		}
		if more == "" && lipgloss.Width(line) > width {
			parts := strings.Split(ansi.Hardwrap(line, width, true), "\n")
			out, line = append(out, parts[:len(parts)-1]...), parts[len(parts)-1]
		}
	}
	return append(out, line)
}

// hint says what the user can do, with a shell command if there is one. brief replaces it where
// there is no room for the whole; if brief is empty, the hint may be left out there.
type hint struct{ what, command, brief string }

// lines wraps the hint at width columns. It breaks a command only where the shell goes on reading,
// so that users can paste it.
func (h hint) lines(width int) []string {
	if h.command == "" {
		return wrap(h.what, width)
	}
	text := h.what + " " + h.command
	if width <= 0 || lipgloss.Width(text) <= width {
		return []string{text}
	}
	return append(wrap(h.what, width), wrapWith(h.command, width, ` \`)...)
}
