package podworker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/internal/podtest"
)

// burst has the workers start pods that come together on a runtime that works on two things at a
// time, each taking 100 ms, and returns when the pods' containers had been started, in that order.
func burst(t *testing.T, pods int, stuck func(string, func()) bool) []time.Duration {
	t.Helper()
	n := newNode(t)
	works := make(chan struct{}, 2)
	n.doing = func(ctx context.Context, uid string, yield func()) error {
		if stuck(uid, yield) {
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
	for _, at := range n.startsOf(t) {
		started = append(started, at...)
	}
	slices.Sort(started)
	return started
}

// TestBurst: of pods that come together the first one runs soon and half of them after half the
// time; all of them run as soon as the runtime could have them.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 60
		started := burst(t, pods, func(string, func()) bool { return false })
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
		started := burst(t, 60, func(uid string, _ func()) bool { return uid < "p30" })
		if len(started) != 30 {
			t.Fatalf("%d pods run beside those that hang, want 30", len(started))
		}
		t.Logf("first %v, last %v", started[0], started[29])
	})
}

// TestYield: pods that wait for something else than the runtime are as if they were not there.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := burst(t, 60, func(uid string, yield func()) bool {
			if uid >= "p30" {
				return false
			}
			yield()
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

// TestCrashLoopsLeaveRoom: pods that end at once, more than a runtime that works on two things at a
// time can start again as soon as they may, hold up no pod that comes and none that ran for long;
// and each of them has its turns.
func TestCrashLoopsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const loops, takes = 300, 20 * time.Millisecond
		n := newNode(t)
		n.cfg.BackOff.Initial, n.cfg.BackOff.Max = time.Second, time.Second
		works := make(chan struct{}, 2)
		n.doing = func(context.Context, string, func()) error {
			works <- struct{}{}
			defer func() { <-works }()
			time.Sleep(takes)
			return nil
		}
		come := func(name, container string) {
			pod := podOf(name, "Always "+container)
			pod.Name = name
			n.Update(Desired{Pod: pod})
		}
		n.programs["crash"] = []run{{time.Millisecond, 1}}
		n.programs["lasting"] = []run{{2 * time.Minute, 1}, {}}
		come("old", "lasting")
		n.at(time.Second)
		for i := range loops {
			come(fmt.Sprintf("loop%03d", i), "crash")
		}
		came := 110 * time.Second
		n.at(came)
		come("new", "lasting")
		n.at(180 * time.Second)
		starts := n.startsOf(t)
		wanted := map[string]time.Duration{"new": came, "old": 2*time.Minute + 40*time.Millisecond}
		for uid, from := range wanted {
			if at := starts[uid]; len(at) == 0 {
				t.Errorf("pod %s does not start", uid)
			} else if late := at[len(at)-1] - from; late > 20*takes {
				t.Errorf("pod %s starts after %v", uid, late)
			}
		}
		for uid, at := range starts {
			for i := range at {
				if i > 0 && strings.HasPrefix(uid, "loop") && at[i]-at[i-1] > 2*loops*takes {
					t.Fatalf("pod %s had no turn from %v to %v", uid, at[i-1], at[i])
				}
			}
		}
		if len(starts) != loops+2 {
			t.Errorf("%d pods have started, want %d", len(starts), loops+2)
		}
	})
}

// startsOf are the times at which containers were started, by pod.
func (n *node) startsOf(t *testing.T) map[string][]time.Duration {
	t.Helper()
	out := map[string][]time.Duration{}
	for _, line := range n.log {
		at, what, _ := strings.Cut(line, " ")
		uid, action, _ := strings.Cut(what, ": ")
		if !strings.HasPrefix(action, "StartContainer") {
			continue
		}
		d, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		out[uid] = append(out[uid], d)
	}
	return out
}

// TestStartLimiterOrder: critical and static pods come before others, and the oldest first; who leaves while it
// waits takes no place.
func TestStartLimiterOrder(t *testing.T) {
	s := newStartLimiter(leastPlaces)
	s.limit = 1
	now := epoch
	var workers []*worker
	enter := func(i int, pod string) bool {
		p := podOf("x", "Always web")
		switch pod {
		case "critical":
			podtest.Priority(2_000_001_000)(p)
		case "static":
			podtest.Source(source.FileSource)(p)
		}
		return s.enter(workers[i], p, now)
	}
	kinds := []string{"", "", "", "static", "critical", ""}
	for i := range kinds {
		workers = append(workers, &worker{arrival: i, wake: make(chan struct{}, 1)})
	}
	for _, i := range []int{0, 2, 5, 1, 4, 3} { // they ask in whatever order
		if enter(i, kinds[i]) != (i == 0) {
			t.Fatalf("worker %d: %v", i, i != 0)
		}
	}
	s.leave(workers[2], now)
	var order []int
	for last := 0; ; {
		order = append(order, last)
		s.leave(workers[last], now)
		last = slices.IndexFunc(workers, func(p *worker) bool { return !s.places[p].IsZero() })
		if last < 0 {
			break
		}
		if len(workers[last].wake) != 1 {
			t.Errorf("worker %d has a place and was not woken", last)
		}
	}
	if want := []int{0, 3, 4, 1, 5}; !slices.Equal(order, want) {
		t.Errorf("turns %v, want %v", order, want)
	}
}

// TestPlacesFollowTheRuntime: there are more while its answers take as long as ever, and fewer when
// they take longer; never less than a few.
func TestPlacesFollowTheRuntime(t *testing.T) {
	s := newStartLimiter(leastPlaces)
	start := s.limit
	pod := podOf("x", "Always web")
	for i := range 1000 {
		s.enter(&worker{arrival: i, wake: make(chan struct{}, 1)}, pod, epoch)
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
