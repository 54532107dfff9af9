package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// owned is a pod of a controller.
func owned(uid, limits, owner string) *v1.Pod {
	p := pod(uid, limits)
	p.OwnerReferences = []metav1.OwnerReference{
		{Kind: "ReplicaSet", UID: types.UID(owner), Controller: ptr.To(true)},
	}
	return p
}

func TestRepeats(t *testing.T) {
	var r repeats
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	if got := r.until("a", now); got.After(now) {
		t.Errorf("the first pod is held back until %v", got)
	}
	seconds := 0
	for _, hold := range []int{10, 20, 40, 80, 160, 300, 300} {
		r.rejected("a", at(seconds))
		seconds += hold
		if got := r.until("a", now); !got.Equal(at(seconds)) {
			t.Errorf("held back until %v, want %v", got, at(seconds))
		}
	}
	r.rejected("", at(seconds))
	if got := r.until("", at(seconds)); got.After(at(seconds)) {
		t.Error("a pod without a controller is held back")
	}
	// Long after, it begins anew; so it does when one was admitted.
	seconds += 700
	r.rejected("a", at(seconds))
	if got := r.until("a", now); !got.Equal(at(seconds + 10)) {
		t.Errorf("held back until %v after a long time, want %v", got, at(seconds+10))
	}
	r.admitted("a")
	if got := r.until("a", at(seconds)); got.After(at(seconds)) {
		t.Errorf("held back until %v though another one was admitted", got)
	}
	// Of all controllers together there are six a minute.
	seconds += 100
	for i := range perMinute {
		r.rejected(types.UID(fmt.Sprint("other", i)), at(seconds+i))
	}
	if got := r.until("b", at(seconds+5)); !got.Equal(at(seconds + 60)) {
		t.Errorf("the seventh is held back until %v, want %v", got, at(seconds+60))
	}
	for i := range 2 * maxOwners {
		r.rejected(types.UID(fmt.Sprint(i)), at(seconds))
	}
	if len(r.owners) > maxOwners {
		t.Errorf("%d controllers are remembered", len(r.owners))
	}
}

// A controller that makes a pod for each that fails makes few failed pods, and a pod that is held
// back is admitted as soon as there is room.
func TestReplacementsAreHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Wait = time.Minute })
		defer d.stop()
		d.queue.Submit(pod("full", "cpu=7"), false)
		d.expect("full Admit")
		d.queue.Submit(owned("r0", "cpu=4", "set"), false)
		rejected, pending := 0, 0
		for range 60 {
			time.Sleep(time.Second)
			for name, outcome := range d.outcomes() {
				switch {
				case outcome == "Reject" && name == fmt.Sprint("r", pending):
					rejected++
					pending++
					d.queue.Submit(owned(fmt.Sprint("r", pending), "cpu=4", "set"), false)
				case outcome == "Admit" && strings.HasPrefix(name, "r"):
					t.Fatalf("%s is admitted on a full node", name)
				}
			}
		}
		if rejected < 2 || rejected > 4 {
			t.Errorf("%d pods were rejected within a minute, want the first, after 10 s and "+
				"after 30 s", rejected)
		}
		d.queue.Release("full")
		time.Sleep(time.Second)
		if got := d.outcomes()[fmt.Sprint("r", pending)]; got != "Admit" {
			t.Errorf("with room the pod that was held back is %s", got)
		}
	})
}

// Where pods do not wait none is held back.
func TestNobodyIsHeldBackWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		for i := range 3 {
			name := fmt.Sprint("r", i)
			d.queue.Submit(owned(name, "cpu=100", "set"), false)
			time.Sleep(time.Second)
			if got := d.outcomes()[name]; got != "Reject" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}
