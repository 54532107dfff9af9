package oneline

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"as it is", "no  place (two spaces)", "no  place (two spaces)"},
		{"nothing", "", ""},
		{"lines", "\n one\r\n\ttwo\n\n", "one two"},
		{"terminal", "\x1b[31mred\x1b[0m\x00", "[31mred [0m"},
		{"no text", "a\xffb", "a\ufffdb"},
		{"as long as may be", strings.Repeat("x", Most), strings.Repeat("x", Most)},
		{"longer", strings.Repeat("x", Most+1),
			strings.Repeat("x", Most-22) + "... (897 bytes in all)"},
		{"lines that fit in the end", strings.Repeat("\n", Most) + "x", "x"},
		{"whole characters", strings.Repeat("ü", Most),
			strings.Repeat("ü", (Most-23)/2) + "... (1792 bytes in all)"},
		{"nothing to be seen", strings.Repeat("\n", 3*Most), "... (2688 bytes in all)"},
	} {
		if got := Of(test.text); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("a\nb")
	f.Add(strings.Repeat("ab\n", Most))
	f.Fuzz(func(t *testing.T, text string) {
		got := Of(text)
		if len(got) > Most || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("%q of %q", got, text)
		}
		if Of(got) != got {
			t.Errorf("%q is not left as it is", got)
		}
	})
}

// A megabyte costs as much as a line.
func TestCostIsBounded(t *testing.T) {
	line := strings.Repeat("x\n", 2*Most)
	long := strings.Repeat("x\n", 1<<20)
	of := func(text string) float64 { return testing.AllocsPerRun(10, func() { Of(text) }) }
	if a, b := of(line), of(long); b > a {
		t.Errorf("%v allocations for a line and %v for a megabyte", a, b)
	}
}
