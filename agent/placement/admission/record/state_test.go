package record

import (
	"testing"
)

// From every state events lead to Released, and none of them back to a pod that does not go.
func TestTransitions(t *testing.T) {
	for s := Queued; s <= Unreleased; s++ {
		if to, ok := s.next(leaving); ok && !to.Goes() || !ok && !s.Goes() {
			t.Errorf("leaving makes %d %d", s, to)
		}
		if to, ok := s.next(release); !ok {
			if !s.GoesNow() && s != Unreleased {
				t.Errorf("release changes nothing in %d", s)
			}
		} else if !to.GoesNow() || s.UnderWay() != (to == Canceling) {
			t.Errorf("release makes %d %d", s, to)
		}
		for _, p := range []prompt{timeUp, changed} {
			to, ok := s.next(p)
			if ok && (s.UnderWay() || s.Goes() != to.Goes()) {
				t.Errorf("prompt %d makes %d %d", p, s, to)
			}
		}
	}
}
