package await

import (
	"math"
	"testing"
	"time"
)

// Pauses double from the first to the last, by their number and by the one before, however many
// there were.
func TestPauses(t *testing.T) {
	p := Pauses{First: 3 * time.Second, Last: 10 * time.Second}
	var last time.Duration
	for n, want := range []time.Duration{3e9, 6e9, 10e9, 10e9} {
		if last = p.Next(last); last != want || p.After(n) != want {
			t.Errorf("pause %d is %v by the one before and %v by its number, want %v", n, last, p.After(n),
				want)
		}
	}
	if got := p.After(math.MaxInt); got != p.Last {
		t.Errorf("it is %v in the end", got)
	}
	if got := (Pauses{First: time.Minute, Last: time.Second}).After(0); got != time.Second {
		t.Errorf("a first pause beyond the last is %v", got)
	}
	if got := (Pauses{First: 1, Last: math.MaxInt64}).After(62); got != 1<<62 {
		t.Errorf("a long pause is %v", got)
	}
}
