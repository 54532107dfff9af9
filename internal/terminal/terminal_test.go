package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestWrap(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"short":    {"twenty columns, just\n\nmore\n", "twenty columns, just\n\nmore\n"},
		"long":     {"twenty columns, just not", "twenty columns, just\n  not"},
		"indented": {"  main: 2 CPUs, 1 GPU\n", "  main: 2 CPUs, 1\n    GPU\n"},
		"an item": {"  - the pod with fewer CPUs\n",
			"  - the pod with\n    fewer CPUs\n"},
		"a long word": {"ask for example.com/a-long-name\n",
			"ask for\n  example.com/a-long-name\n"},
		"a long first word": {"example.com/a-long-name is away\n",
			"example.com/a-long-name\n  is away\n"},
		"not only ASCII": {"äöü äöü äöü äöü äöüß\n",
			"äöü äöü äöü äöü äöüß\n"},
	} {
		if got := Wrap(tt.text, 20); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Nothing is lost or put in but white space, and lines of more than one word are not too wide.
func TestWrapKeepsTheWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`( {0,6}(- )?[a-zä,.]{1,12}( [a-zä,.]{1,12}){0,20}\n){0,4}`).
			Draw(t, "text")
		width := rapid.IntRange(20, 60).Draw(t, "width")
		wrapped := Wrap(text, width)
		if got, want := strings.Fields(wrapped), strings.Fields(text); strings.Join(got, " ") !=
			strings.Join(want, " ") {
			t.Fatalf("words %q, want %q", got, want)
		}
		for line := range strings.Lines(wrapped) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > width {
				t.Fatalf("%q is wider than %d", line, width)
			}
		}
		if again := Wrap(wrapped, width); again != wrapped {
			t.Fatalf("wrapped again: %q, want %q", again, wrapped)
		}
	})
}

func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"a/b-c.d:1,e=f+g@h%i_j": "a/b-c.d:1,e=f+g@h%i_j", "": "''", "a b": "'a b'",
		"it's": `'it'\''s'`, "größe": "größe",
	} {
		if got := Quoted(word); got != want {
			t.Errorf("%q is quoted as %s, want %s", word, got, want)
		}
	}
}
