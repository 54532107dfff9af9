package requests

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// run has a queue make requests for as long as the test lasts.
func run(t *testing.T, next Next[string]) *Queue[string] {
	q := New("test", next)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = q.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return q
}

// counts are how often each key was asked for, and how many at once.
type counts struct {
	mu       sync.Mutex
	of       map[string]int
	now, top int
}

func (c *counts) begin(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[key]++
	c.now++
	c.top = max(c.top, c.now)
	return c.of[key]
}

func (c *counts) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// Requests that hang hold up their own things, and others no longer than their deadline, also when
// as many hang as are made at once.
func TestHungRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counts{of: map[string]int{}}
		var answered time.Duration
		began := time.Now()
		q := run(t, func(ctx context.Context, key string) (bool, time.Time, error) {
			defer c.end()
			if c.begin(key); key != "well" {
				<-ctx.Done()
				return false, time.Time{}, ctx.Err()
			}
			answered = time.Since(began)
			return true, time.Time{}, nil
		})
		for i := range parallel {
			q.Add(string(rune('a' + i)))
		}
		synctest.Wait()
		q.Add("well")
		time.Sleep(Deadline + time.Second)
		synctest.Wait()
		if c.of["well"] != 1 || answered > Deadline {
			t.Errorf("asked %d times, after %v", c.of["well"], answered)
		}
		if c.top != parallel {
			t.Errorf("%d requests at once, want %d", c.top, parallel)
		}
	})
}

// A thing is looked at until there is nothing to request, later where that is said, and after a
// failure again and again, ever later, but not before the API server wants it, up to a minute.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counts{of: map[string]int{}}
		q := run(t, func(_ context.Context, key string) (bool, time.Time, error) {
			defer c.end()
			n := c.begin(key)
			switch {
			case key == "three requests":
				return n == 4, time.Time{}, nil
			case key == "later" && n == 1:
				return true, time.Now().Add(time.Minute), nil
			case key == "fails":
				return false, time.Time{}, errors.New("no")
			case key == "throttled" && n == 1:
				return false, time.Time{}, apierrors.NewTooManyRequests("slow down", 30)
			case key == "for a day" && n == 1:
				return false, time.Time{}, apierrors.NewTooManyRequests("come back tomorrow", 86400)
			}
			return true, time.Time{}, nil
		})
		for _, key := range []string{"three requests", "later", "fails", "throttled", "for a day"} {
			q.Add(key)
		}
		expect := func(when string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			for key, n := range want {
				if c.of[key] != n {
					t.Errorf("%s: %q was asked for %d times, want %d", when, key, c.of[key], n)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
		expect("at once", map[string]int{
			"three requests": 4, "later": 1, "fails": 1, "throttled": 1,
		})
		time.Sleep(29 * time.Second)
		// At 0.2, 0.6, 1.4, 3, 6.2, 12.6, then each 10 s.
		expect("after 29 s", map[string]int{"later": 1, "fails": 8, "throttled": 1, "for a day": 1})
		time.Sleep(32 * time.Second)
		expect("after a minute", map[string]int{
			"later": 2, "fails": 11, "throttled": 2, "for a day": 2,
		})
	})
}

// Of which requests nobody knows whether they were carried out.
func TestMayHaveTakenEffect(t *testing.T) {
	for _, err := range []error{
		context.DeadlineExceeded, errors.New("connection reset"),
		apierrors.NewInternalError(errors.New("x")), apierrors.NewTimeoutError("x", 1),
	} {
		if !MayHaveTakenEffect(err) {
			t.Errorf("%v: it was not", err)
		}
	}
	for _, err := range []error{
		apierrors.NewTooManyRequests("x", 1), apierrors.NewUnauthorized("x"),
		apierrors.NewBadRequest("x"),
	} {
		if MayHaveTakenEffect(err) {
			t.Errorf("%v: it may have been", err)
		}
	}
}
