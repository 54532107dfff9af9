package podworker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/source"
)

// burst has the workers start pods that come together on a runtime that works on two things at a
// time, each taking 100 ms, and returns when the pods' containers had been started, in that order.
func burst(t *testing.T, pods int, stuck func(context.Context, string) bool) []time.Duration {
	t.Helper()
	n := newNode(t)
	works := make(chan struct{}, 2)
	n.doing = func(ctx context.Context, uid string) error {
		if stuck(ctx, uid) {
			<-ctx.Done()
			return ctx.Err()
		}
		works <- struct{}{}
		defer func() { <-works }()
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	for i := range pods {
		pod := podOf(fmt.Sprintf("p%02d", i), "Always web")
		pod.Name = string(pod.UID)
		n.Update(Desired{Pod: pod})
	}
	n.at(time.Minute)
	var started []time.Duration
	for _, line := range n.log {
		at, _, _ := strings.Cut(line, " ")
		d, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "StartContainer") {
			started = append(started, d)
		}
	}
	return started
}

// TestBurst: of pods that come together the first one runs soon and half of them after half the
// time; all of them run as soon as the runtime could have them.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 60
		started := burst(t, pods, func(context.Context, string) bool { return false })
		if len(started) != pods {
			t.Fatalf("%d pods run, want %d", len(started), pods)
		}
		whole := started[pods-1]
		t.Logf("first %v, half %v, whole %v", started[0], started[pods/2-1], whole)
		if possible := pods * 2 * 100 * time.Millisecond / 2; whole > possible+possible/50 {
			t.Errorf("the last one runs after %v, possible is %v", whole, possible)
		}
		if started[0] > whole/12 || started[pods/2-1] > whole*55/100 {
			t.Errorf("the first runs after %v, half after %v of %v", started[0],
				started[pods/2-1], whole)
		}
	})
}

// TestStuckPodsTakeNoPlaces: pods whose start hangs leave the places to others.
func TestStuckPodsTakeNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := burst(t, 60, func(_ context.Context, uid string) bool { return uid < "p30" })
		if len(started) != 30 {
			t.Fatalf("%d pods run beside those that hang, want 30", len(started))
		}
		t.Logf("first %v, last %v", started[0], started[29])
	})
}

// TestYield: pods that wait for something else than the runtime are as if they were not there.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := burst(t, 60, func(ctx context.Context, uid string) bool {
			if uid >= "p30" {
				return false
			}
			Yield(ctx)
			return true
		})
		if len(started) != 30 {
			t.Fatalf("%d pods run beside those that wait, want 30", len(started))
		}
		if whole, possible := started[29], 3*time.Second; whole > possible+possible/10 {
			t.Errorf("the last one runs after %v, possible is %v", whole, possible)
		}
	})
}

// TestTurns: critical and static pods come before others, and the oldest first; who leaves while it
// waits takes no place.
func TestTurns(t *testing.T) {
	s := newStarts()
	s.limit = 1
	now := epoch
	var workers []*worker
	enter := func(i int, pod string) bool {
		p := podOf("x", "Always web")
		switch pod {
		case "critical":
			p.Spec.Priority = ptr.To(int32(2_000_001_000))
		case "static":
			p.Annotations = map[string]string{source.AnnotationSource: source.FileSource}
		}
		ok, _ := s.enter(workers[i], p, now)
		return ok
	}
	kinds := []string{"", "", "", "static", "critical", ""}
	for i := range kinds {
		workers = append(workers, &worker{order: i, wake: make(chan struct{}, 1)})
	}
	for _, i := range []int{0, 2, 5, 1, 4, 3} { // they ask in whatever order
		if enter(i, kinds[i]) != (i == 0) {
			t.Fatalf("worker %d: %v", i, i != 0)
		}
	}
	s.leave(workers[2], now)
	var turns []int
	for last := 0; ; {
		turns = append(turns, last)
		s.leave(workers[last], now)
		last = slices.IndexFunc(workers, func(p *worker) bool { return !s.places[p].IsZero() })
		if last < 0 {
			break
		}
		if len(workers[last].wake) != 1 {
			t.Errorf("worker %d has a place and was not woken", last)
		}
	}
	if want := []int{0, 3, 4, 1, 5}; !slices.Equal(turns, want) {
		t.Errorf("turns %v, want %v", turns, want)
	}
}

// TestPlacesFollowTheRuntime: there are more while its answers take as long as ever, and fewer when
// they take longer; never less than a few.
func TestPlacesFollowTheRuntime(t *testing.T) {
	s := newStarts()
	start := s.limit
	pod := podOf("x", "Always web")
	for i := range 1000 {
		s.enter(&worker{order: i, wake: make(chan struct{}, 1)}, pod, epoch)
	}
	for range 50 {
		s.took(100*time.Millisecond, epoch)
	}
	if s.limit != start+50 || len(s.places) != s.limit {
		t.Errorf("%d places, %d given; want %d", s.limit, len(s.places), start+50)
	}
	for range 20 {
		s.took(time.Second, epoch)
	}
	if s.limit != start+30 {
		t.Errorf("%d places with a runtime that is slow, want %d", s.limit, start+30)
	}
	for range 500 {
		s.took(time.Hour, epoch)
	}
	if s.limit < leastPlaces {
		t.Errorf("%d places, want %d at least", s.limit, leastPlaces)
	}
}
