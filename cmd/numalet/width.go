package main

import (
	"io"

	"github.com/numalet/numalet/agent/terminal"
)

// Widths at which text for people is wrapped.
const (
	noTerminal = 100
	narrowest  = 40
)

// width returns how wide text on w may be: the width of the terminal, if w is one.
func width(w io.Writer) int {
	if columns := terminal.Width(w); columns > 0 {
		return max(columns, narrowest)
	}
	return noTerminal
}
