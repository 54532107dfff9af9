package cli

import (
	"io"

	"github.com/numalet/numalet/internal/terminal"
)

// Widths at which text for people is wrapped.
const (
	NoTerminal = 100 // without a terminal
	narrowest  = 40
)

// Width returns how wide text on w may be: the width of the terminal, if w is one.
func Width(w io.Writer) int {
	if columns := terminal.Width(w); columns > 0 {
		return max(columns, narrowest)
	}
	return NoTerminal
}
