package cri

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Pulls beyond the rate wait, first starts before restarts, and each gets its turn in the end.
func TestPullPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullPace(2, 1)
		began := time.Now()
		begun := make(chan string)
		begin := func(name string, restart bool) {
			go func() {
				if err := p.wait(t.Context(), restart); err != nil {
					t.Error(err)
				}
				begun <- name
			}()
			synctest.Wait()
		}
		begin("at once", true)
		begin("restart 1", true)
		begin("restart 2", true)
		begin("first 1", false)
		begin("first 2", false)
		want := []string{"at once", "first 1", "first 2", "restart 1", "restart 2"}
		var order []string
		for range want {
			order = append(order, <-begun)
		}
		if !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("five pulls at 2 a second began within %v", took)
		}
	})
}

// A restart does not wait forever.
func TestPullPaceStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullPace(1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 { // one of them always waits
			running.Go(func() {
				for ctx.Err() == nil {
					_ = p.wait(ctx, false) // only the end of the test causes an error
					time.Sleep(time.Millisecond)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if err := p.wait(t.Context(), true); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < mostWait || took > mostWait+5*time.Second {
			t.Errorf("the restart waited for %v, want about %v", took, mostWait)
		}
		cancel()
		running.Wait()
		time.Sleep(time.Hour) // until the timer ends
	})
}

// If several restarts are overdue, a first start gets its turn after one of them.
func TestPullPaceOverdueTogether(t *testing.T) {
	now := time.Now()
	old := now.Add(-2 * mostWait)
	restart, first := &pullWaiter{restart: true, since: old}, &pullWaiter{since: now}
	for _, c := range []struct {
		name      string
		waiting   []*pullWaiter
		restarted bool
		want      int
	}{
		{"an overdue restart", []*pullWaiter{restart, restart, first}, false, 0},
		{"then the first start", []*pullWaiter{restart, restart, first}, true, 2},
		{"nobody starts first", []*pullWaiter{restart, restart}, true, 0},
		{"nobody is overdue", []*pullWaiter{{restart: true, since: now}, first}, false, 1},
		{"only restarts", []*pullWaiter{{restart: true, since: now}}, true, 0},
	} {
		p := &pullPace{waiting: c.waiting, restarted: c.restarted}
		if got := p.nextLocked(now); got != c.want {
			t.Errorf("%s: the turn of %d, want %d", c.name, got, c.want)
		}
	}
}

// A caller that gives up leaves nothing behind.
func TestPullPaceGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullPace(0.001, 1)
		if err := p.wait(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.wait(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait() = %v", err)
		}
		if len(p.waiting) > 0 {
			t.Errorf("%d wait", len(p.waiting))
		}
		time.Sleep(time.Hour) // until the timer ends
	})
}
