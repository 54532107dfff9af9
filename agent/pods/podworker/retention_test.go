package podworker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/numalet/numalet/cri"
)

// TestRetention: of a container as many records stay beside the newest as are asked for, and
// younger ones until they are old enough, when the worker looks again.
func TestRetention(t *testing.T) {
	// Five records, c4 the newest and running; c0 is four minutes older than it.
	observed := cri.Pod{}
	for i := range 5 {
		c := cri.Container{ID: fmt.Sprint("c", 4-i), Name: "web", State: cri.ContainerExited,
			CreatedAt: epoch.Add(time.Duration(4-i) * time.Minute)}
		if i == 0 {
			c.State = cri.ContainerRunning
		}
		observed.Containers = append(observed.Containers, c)
	}
	now := epoch.Add(4 * time.Minute)
	for _, c := range []struct {
		keep Retention
		want []string
		wake time.Duration // after epoch; 0: not for this
	}{
		{Retention{}, []string{"c2", "c1", "c0"}, 0},
		{Retention{Dead: 1}, []string{"c2", "c1", "c0"}, 0},
		{Retention{Dead: 3}, []string{"c0"}, 0},
		{Retention{Dead: 9}, nil, 0},
		{Retention{Dead: -1}, nil, 0},
		{Retention{Dead: 1, Age: 3 * time.Minute}, []string{"c1", "c0"}, 5 * time.Minute},
		{Retention{Dead: 1, Age: time.Hour}, nil, time.Hour},
	} {
		p := &plan{input: input{observed: observed, now: now, memory: newMemory(nil),
			retention: c.keep}}
		p.prune()
		var got []string
		if p.d.Action != nil {
			got = p.d.Action.IDs
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: removes %q, want %q", c.keep, got, c.want)
		}
		if c.wake == 0 != p.d.Wake.IsZero() || c.wake != 0 && !p.d.Wake.Equal(epoch.Add(c.wake)) {
			t.Errorf("%+v: looks again at %v, want %v after the first", c.keep, p.d.Wake, c.wake)
		}
	}
}
