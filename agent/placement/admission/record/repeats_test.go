package record

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestRepeats(t *testing.T) {
	var r Repeats
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	if got := r.Until("a", now); got.After(now) {
		t.Errorf("the first pod is held back until %v", got)
	}
	seconds := 0
	for _, hold := range []int{10, 20, 40, 80, 160, 300, 300} {
		r.Rejected("a", at(seconds))
		seconds += hold
		if got := r.Until("a", now); !got.Equal(at(seconds)) {
			t.Errorf("held back until %v, want %v", got, at(seconds))
		}
	}
	r.Rejected("", at(seconds))
	if got := r.Until("", at(seconds)); got.After(at(seconds)) {
		t.Error("a pod without a controller is held back")
	}
	// Long after, it begins anew; so it does when one was admitted.
	seconds += 700
	r.Rejected("a", at(seconds))
	if got := r.Until("a", now); !got.Equal(at(seconds + 10)) {
		t.Errorf("held back until %v after a long time, want %v", got, at(seconds+10))
	}
	r.Admitted("a")
	if got := r.Until("a", at(seconds)); got.After(at(seconds)) {
		t.Errorf("held back until %v though another one was admitted", got)
	}
	// Of all controllers together there are six a minute.
	seconds += 100
	for i := range perMinute {
		r.Rejected(types.UID(fmt.Sprint("other", i)), at(seconds+i))
	}
	if got := r.Until("b", at(seconds+5)); !got.Equal(at(seconds + 60)) {
		t.Errorf("the seventh is held back until %v, want %v", got, at(seconds+60))
	}
	for i := range 2 * maxOwners {
		r.Rejected(types.UID(fmt.Sprint(i)), at(seconds))
	}
	if len(r.owners) > maxOwners {
		t.Errorf("%d controllers are remembered", len(r.owners))
	}
}
