package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Widths that text for people is wrapped at.
const (
	noTerminal = 100
	narrowest  = 40
)

// width is how wide text on w may be: as the terminal is, if it is one.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return max(columns, narrowest)
		}
	}
	return noTerminal
}
