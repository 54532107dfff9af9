package strictyaml

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// laughs nests lists of ten aliases each.
func laughs(depth int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol]\n")
	for i := 1; i < depth; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(alias+", ", 10), ", "))
	}
	return b.String()
}

// The expansion of aliases is bounded, and takes no memory beyond the bound.
func TestAliases(t *testing.T) {
	long := "a: &a " + strings.Repeat("x", 500_000) + "\nb: ["
	usual := "a: &a [x]\nb: *a\n"
	for name, tt := range map[string]struct{ text, want string }{
		"laughs":        {laughs(30), "aliases (*name) stand for more than 10 MiB"},
		"a few laughs":  {laughs(4), ""},
		"a long text":   {long + strings.Repeat("*a, ", 100_000) + "]", "more than 10 MiB"},
		"ten of it":     {long + strings.Repeat("*a, ", 10) + "]", ""},
		"merged":        {long + "]\nc: &c {k: *a}\n" + merged(1000), "more than 10 MiB"},
		"as a key":      {"a: &a x\nb: {*a : 1}\n", ""},
		"within itself": {"a: &a [*a]\n", "an alias (*name) stands within what it stands for"},
		"around":        {"a: &a {b: &b [{c: *a}]}\n", "stands within what it stands for"},
		"as usual":      {usual, ""},
		"in a text":     {"a: '& and *'\nb: \"&a *a\"\n", ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse([]byte(tt.text))
		var into map[string]any
		errs := []string{errorText(err), errorText(Unmarshal([]byte(tt.text), &into))}
		runtime.ReadMemStats(&after)
		for _, got := range errs {
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 500 {
			t.Errorf("%s: took %d MiB", name, took)
		}
	}
}

func merged(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "m%d: {<<: *c}\n", i)
	}
	return b.String()
}
