package main

import (
	"io"

	"github.com/numalet/numalet/agent/terminal"
)

// Widths that text for people is wrapped at.
const (
	noTerminal = 100
	narrowest  = 40
)

// width is how wide text on w may be: as the terminal is, if it is one.
func width(w io.Writer) int {
	if columns := terminal.Width(w); columns > 0 {
		return max(columns, narrowest)
	}
	return noTerminal
}
