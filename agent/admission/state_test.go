package admission

import (
	"testing"
)

// From every state events lead to Released, and none of them back to a pod that does not go.
func TestTransitions(t *testing.T) {
	for s := queued; s <= unreleased; s++ {
		if to, ok := s.next(leaving); ok && !to.goes() || !ok && !s.goes() {
			t.Errorf("leaving makes %d %d", s, to)
		}
		if to, ok := s.next(release); !ok {
			if !s.goesNow() && s != unreleased {
				t.Errorf("release changes nothing in %d", s)
			}
		} else if !to.goesNow() || s.underWay() != (to == canceling) {
			t.Errorf("release makes %d %d", s, to)
		}
		for _, p := range []prompt{timeUp, changed} {
			to, ok := s.next(p)
			if ok && (s.underWay() || s.goes() != to.goes()) {
				t.Errorf("prompt %d makes %d %d", p, s, to)
			}
		}
	}
}
