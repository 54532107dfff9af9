package playground

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// wrap has a text in lines of width columns, broken at blanks only: a name is found again, and a path
// can be copied. A word is cut where it is wider than all of a line. 0: one line.
func wrap(text string, width int) []string { return wrapWith(text, width, "") }

// wrapWith is wrap with something at the end of each line but the last.
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

// hint is what can be done, with a command for a shell if there is one. brief is what of it is shown
// where there is no room for all; empty: it may be left out there.
type hint struct{ what, command, brief string }

// lines are the hint in lines of width columns. A command is broken only where a shell goes on
// reading, so that it can be pasted.
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

// short is a hint with a command in one line of width columns, if need be the command alone; empty
// if there is none or the line does not do: half of a command is none.
func (h hint) short(width int) string {
	for _, text := range []string{h.what + " " + h.command, h.command} {
		if h.command != "" && lipgloss.Width(text) <= width {
			return text
		}
	}
	return ""
}
