package csi

import (
	"testing"
	"testing/synctest"
	"time"
)

// A refusal of the API server is believed once it has been repeated for lastDoubt, for each use by itself.
func TestRefusalIsBelievedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := use{pod: "u", name: "pv"}, use{pod: "w", name: "pv"}
		r := &recovery{all: map[string]*unnamed{
			"one":   {remnant: remnant{dir: "one", uses: []use{one}}},
			"other": {remnant: remnant{dir: "other", uses: []use{other}}},
		}}
		ask := func(u use, want bool) {
			t.Helper()
			if again := r.Refused(Use{use: u}); again != want {
				t.Errorf("%v is asked about again: %t", u, again)
			}
		}
		ask(one, true)
		time.Sleep(lastDoubt - time.Second)
		ask(one, true)
		ask(other, true)
		time.Sleep(time.Second)
		ask(one, false)
		ask(other, true)
		ask(use{pod: "x"}, false)
	})
}
