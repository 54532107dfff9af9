package histories

import (
	"strings"
	"testing"
	"time"
)

// values parses "a 2s, b, c 10ms": a value, and how long it lasted; without a time, always.
func values(t *testing.T, text string) (out []Value) {
	t.Helper()
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ", ") {
		v, at := Value{one, Always}, strings.LastIndex(one, " ")
		if at > 0 {
			long := one[at+1:]
			v.Is = one[:at]
			lasted, err := time.ParseDuration(long)
			if err != nil {
				t.Fatal(err)
			}
			v.Lasted = lasted
		}
		out = append(out, v)
	}
	return out
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		ours, theirs string
		others       string // what the agents show for another pod
		want         string
	}{
		"alike":              {ours: "a 1s, b 2s", theirs: "a 3s, b 1s"},
		"we skip":            {ours: "a 1s, c 2s", theirs: "a 3s, b 10ms, c 1s", others: "b 1s"},
		"they skip":          {ours: "a 1s, b 10ms, c 2s", theirs: "a 3s, c 1s", others: "b 1s"},
		"we skip for long":   {ours: "a 1s, c 2s", theirs: "a 3s, b 5s, c 1s", others: "b 1s", want: "for long"},
		"they skip for long": {ours: "a 1s, b 5s, c 2s", theirs: "a 3s, c 1s", others: "b 1s", want: "for long"},
		"only we show": {ours: "a 1s, b 10ms, c 2s", theirs: "a 3s, c 1s",
			want: "which the other never shows"},
		"only they show": {ours: "a 1s, c 2s", theirs: "a 3s, b 10ms, c 1s",
			want: "which the other never shows"},
		"another order": {ours: "a 1s, b 10ms, c 1s, d 1s", theirs: "a 1s, c 1s, b 10ms, d 1s",
			want: "in another order"},
		"another end": {ours: "a 1s, b 10ms", theirs: "a 1s, c 10ms", others: "b 1s, c 1s",
			want: "and another end"},
		"we go back": {ours: "a 1s, b 10ms, a 1s, c 1s", theirs: "a 1s, c 1s", others: "b 1s",
			want: "and goes back"},
		"others go back, too": {ours: "a 1s, b 10ms, a 1s, c 1s", theirs: "a 1s, c 1s",
			others: "a 1s, b 1s, a 1s"},
		"another end of the kind": {ours: "a 1s, terminated Error 7 10ms, c 2s", theirs: "a 3s, c 1s",
			others: "terminated Error 8 1s"},
		"both go back":   {ours: "a 1s, b 1s, a 1s", theirs: "a 1s, b 1s, a 1s"},
		"an event less":  {ours: "a, c", theirs: "a, b, c", others: "b", want: "and that only"},
		"nothing at all": {theirs: "a, c", want: "and that only"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Comparison{Shortly: time.Second}
			ours, theirs := History{"f state": values(t, test.ours)}, History{"f state": values(t, test.theirs)}
			other := History{"f state": values(t, test.others)}
			c.Know(Ours, map[string]History{"pod": ours, "other": other})
			c.Know(Theirs, map[string]History{"pod": theirs, "other": other})
			got := strings.Join(c.Pod("pod", ours, theirs), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			c.Meant = []Meant{{Field: ".* state"}}
			if got := c.Pod("pod", ours, theirs); len(got) > 0 {
				t.Errorf("what is meant is told: %q", got)
			}
		})
	}
}

// An intended difference counts only in its place, and only if it occurs.
func TestMeant(t *testing.T) {
	ours := History{"f": values(t, "a, #1 waits 9s, c")}
	theirs := History{"f": values(t, "a, #1 ended 9s, c")}
	for name, test := range map[string]struct {
		meant        Meant
		wrong, unmet int
	}{
		"as it is":               {meant: Meant{Pod: "pod", Field: "f", Value: "#1 .*"}},
		"of one":                 {meant: Meant{Value: "#1 .*", By: Ours}, wrong: 1},
		"of another pod":         {meant: Meant{Pod: "other", Value: "#1 .*"}, wrong: 1, unmet: 1},
		"beside what there is":   {meant: Meant{Value: "#1 waits", Beside: "#1 ended"}, wrong: 1},
		"beside another":         {meant: Meant{Value: "#1 .*", Beside: "#1 gone"}, wrong: 1, unmet: 1},
		"beside another attempt": {meant: Meant{Value: "#1 .*", Beside: "#2 .*"}, wrong: 1, unmet: 1},
		"seldom":                 {meant: Meant{Pod: "other", Seldom: true}, wrong: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := Comparison{Shortly: time.Second, Meant: []Meant{test.meant}}
			wrong := c.Pod("pod", ours, theirs)
			if len(wrong) != test.wrong || len(c.Unmet()) != test.unmet {
				t.Errorf("wrong is %q, not met %v", wrong, c.Unmet())
			}
		})
	}
}
