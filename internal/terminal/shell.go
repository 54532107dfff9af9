package terminal

import (
	"regexp"
	"strings"
)

// bare are words that a shell takes as they are.
var bare = regexp.MustCompile(`^[\pL\pN_@%+=:,./-]+$`)

// Quoted is a word as a shell reads it.
func Quoted(word string) string {
	if bare.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
