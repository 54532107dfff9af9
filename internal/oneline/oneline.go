// Package oneline makes texts of others fit to be shown: plugins and runtimes may send megabytes,
// with line breaks, where people expect one line. Only Logged has an effect: it writes to the log.
package oneline

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/klog/v2"
)

// Most bounds such a text in bytes. With some words around it, it stays below the 1024 bytes of an
// event's message.
const Most = 896

// Of returns the text in one line of at most Most bytes, with a note if it was cut. Its cost does
// not grow with the text.
func Of(text string) string { return Cut(text, Most) }

// Cut is Of with another bound, at least 64.
func Cut(text string, most int) string {
	if len(text) <= most && plain(text) {
		return text
	}
	note := fmt.Sprintf("... (%d bytes in all)", len(text))
	var b strings.Builder
	end := 0 // where the note would fit
	space := false
	for _, r := range text[:min(len(text), 2*most)] { // bytes that are no text give U+FFFD
		space = space || !shown(r)
		if !shown(r) {
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		if b.Len()+utf8.RuneLen(r) > most {
			return b.String()[:end] + note
		}
		b.WriteRune(r)
		if b.Len() <= most-len(note) {
			end = b.Len()
		}
	}
	if len(text) > 2*most {
		return b.String()[:end] + note
	}
	return b.String()
}

// Head returns at most that many bytes of a text's beginning, without a part of a character. It
// leaves lines as they are.
func Head(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// plain reports whether a text can be shown unchanged.
func plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return !shown(r) && r != ' '
	}) && strings.TrimSpace(text) == text
}

// shown reports whether a character is visible; others count as a space.
func shown(r rune) bool { return !unicode.IsSpace(r) && unicode.IsPrint(r) }

// Error returns an error with a text of one line that wraps err, or err itself if its text is one
// line already.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if line := Of(text); line != text {
		return &cutError{line, err}
	}
	return err
}

// Logged is Error for an error of another program, named who. It logs the whole text at V(4).
func Logged(log klog.Logger, who string, err error) error {
	line := Error(err)
	if err != nil && line.Error() != err.Error() { // lists of errors are not comparable
		log.V(4).Info("What "+who+" says in full", "message", err.Error())
	}
	return line
}

type cutError struct {
	line string
	err  error
}

func (e *cutError) Error() string { return e.line }

func (e *cutError) Unwrap() error { return e.err }
