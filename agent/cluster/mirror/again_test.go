package mirror

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/pods/podstatus"
)

// tells gives the mirror pod a phase, as another part of the agent does, and delivers it.
func (n node) tells(phase v1.PodPhase) *v1.Pod {
	n.Helper()
	n.watch()
	published := n.mirror().DeepCopy()
	published.Status.Phase = phase
	if _, err := n.api.CoreV1().Pods(published.Namespace).Update(n.Context(), published,
		metav1.UpdateOptions{}); err != nil {
		n.Fatal(err)
	}
	n.watch()
	return published
}

func change(before, after v1.PodPhase) podstatus.Change {
	return podstatus.Change{Pod: static("h1"), Before: v1.PodStatus{Phase: before},
		After: v1.PodStatus{Phase: after}}
}

// A static pod that begins again under its UID gets a new mirror pod, whether the end of its earlier
// life was told or not, and whether this run of the agent knows of that life. One that goes on, or has
// ended as its mirror pod says, keeps it.
func TestBeginsAgain(t *testing.T) {
	first := podstatus.Change{Pod: static("h1"), After: v1.PodStatus{Phase: v1.PodPending}, First: true}
	again := first
	again.Again = true
	for name, test := range map[string]struct {
		published v1.PodPhase
		changes   []podstatus.Change
		anew      bool
	}{
		"after a failure": {v1.PodFailed, []podstatus.Change{change(v1.PodRunning, v1.PodFailed), again,
			change(v1.PodPending, v1.PodRunning)}, true},
		"after a success, refused": {v1.PodSucceeded, []podstatus.Change{again,
			change(v1.PodPending, v1.PodFailed)}, true},
		"failed again": {v1.PodFailed, []podstatus.Change{again,
			change(v1.PodPending, v1.PodFailed)}, true},
		"before its end was told": {v1.PodRunning, []podstatus.Change{again}, true},
		"and said so twice":       {v1.PodFailed, []podstatus.Change{again, first}, true},
		"in another run of the agent": {v1.PodFailed, []podstatus.Change{first,
			change(v1.PodPending, v1.PodRunning)}, true},
		"it is not known yet": {v1.PodFailed, []podstatus.Change{first}, false},
		"it has ended so":     {v1.PodFailed, []podstatus.Change{change(v1.PodRunning, v1.PodFailed)}, false},
		"it goes on":          {v1.PodRunning, []podstatus.Change{change(v1.PodRunning, v1.PodRunning)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := heard(t)
				n.mirrors.Wrote(first)
				was := n.tells(test.published)
				for _, c := range test.changes {
					n.mirrors.Wrote(c)
					n.watch()
				}
				got := n.mirror()
				if got == nil || (got.UID != was.UID) != test.anew {
					t.Fatalf("after %s there is %+v; want a new one: %t", was.UID, got, test.anew)
				}
				if test.anew && got.Status.Phase != "" {
					t.Errorf("the new one is %s", got.Status.Phase)
				}
				requests := len(n.api.Actions())
				n.watch()
				if more := len(n.api.Actions()) - requests - 1; more > 0 { // except for the list
					t.Errorf("%d requests although nothing is to be done", more)
				}
			})
		})
	}
}
