package requests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	at       []time.Time // of those that failed
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
		q := run(t, func(ctx context.Context, key string) (Verb, time.Time, error) {
			defer c.end()
			if c.begin(key); key != "well" {
				<-ctx.Done()
				return Patch, time.Time{}, ctx.Err()
			}
			answered = time.Since(began)
			return None, time.Time{}, nil
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
		q := run(t, func(_ context.Context, key string) (Verb, time.Time, error) {
			defer c.end()
			n := c.begin(key)
			switch {
			case key == "three requests":
				return map[bool]Verb{true: None, false: Patch}[n == 4], time.Time{}, nil
			case key == "later" && n == 1:
				return None, time.Now().Add(time.Minute), nil
			case key == "fails":
				return Patch, time.Time{}, errors.New("no")
			case key == "throttled" && n == 1:
				return Patch, time.Time{}, apierrors.NewTooManyRequests("slow down", 30)
			case key == "for a day" && n == 1:
				return Patch, time.Time{}, apierrors.NewTooManyRequests("come back tomorrow", 86400)
			}
			return None, time.Time{}, nil
		})
		for _, key := range []string{"three requests", "later", "fails", "throttled", "for a day"} {
			q.Add(key)
		}
		expect := func(when string, want map[string][2]int) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			for key, n := range want {
				if c.of[key] < n[0] || c.of[key] > n[1] {
					t.Errorf("%s: %q was asked for %d times, want %v", when, key, c.of[key], n)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
		expect("at once", map[string][2]int{
			"three requests": {4, 4}, "later": {1, 1}, "fails": {1, 1}, "throttled": {1, 1},
		})
		time.Sleep(29 * time.Second)
		// At 0.2, 0.6, 1.4, 3, 6.2, 12.6, then each 10 s, or all half as long again.
		expect("after 29 s", map[string][2]int{
			"later": {1, 1}, "fails": {7, 8}, "throttled": {1, 1}, "for a day": {1, 1},
		})
		time.Sleep(62 * time.Second)
		expect("after 91 s", map[string][2]int{
			"later": {2, 2}, "fails": {11, 14}, "throttled": {2, 2}, "for a day": {2, 2},
		})
	})
}

// A request that fails is made ever more seldom although others about the same thing succeed: 30 pods
// whose writes fail while reads work cost an API server less than two requests a second after a
// minute, and they do not come all at once.
func TestReadsThatWorkResetNothing(t *testing.T) {
	for name, failure := range map[string]error{
		"internal error": apierrors.NewInternalError(errors.New("no space")),
		"conflict": apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p",
			errors.New("again")),
		"gateway timeout": apierrors.NewGenericServerResponse(504, "patch",
			schema.GroupResource{Resource: "pods"}, "p", "timeout", 0, true),
	} {
		for _, verb := range []Verb{Patch, Delete} {
			t.Run(name+" of "+string(verb), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failWhileReadsWork(t, verb, failure) })
			})
		}
	}
}

func failWhileReadsWork(t *testing.T, verb Verb, failure error) {
	const pods = 30
	c := &counts{of: map[string]int{}}
	q := run(t, func(_ context.Context, key string) (Verb, time.Time, error) {
		defer c.end()
		if n := c.begin(key); n%2 == 0 {
			return Get, time.Time{}, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.at = append(c.at, time.Now())
		return verb, time.Time{}, failure
	})
	for i := range pods {
		q.Add(fmt.Sprint(i))
	}
	all := func() (n int) {
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range c.of {
			n += of
		}
		return n
	}
	time.Sleep(time.Minute)
	before := all()
	time.Sleep(5 * time.Minute)
	if rate := float64(all()-before) / 300; rate >= 2 {
		t.Errorf("%.1f requests a second after a minute", rate)
	}
	moments := map[time.Time]bool{}
	for _, at := range c.at[len(c.at)-pods:] {
		moments[at] = true
	}
	if len(moments) < pods/2 {
		t.Errorf("%d pods ask at %d moments", pods, len(moments))
	}
	if before < 5*pods {
		t.Errorf("only %d requests in the first minute", before)
	}
}

// A request that succeeded is made soon again when it fails next.
func TestSuccessResetsItsOwnPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counts{of: map[string]int{}}
		works := false
		q := run(t, func(_ context.Context, key string) (Verb, time.Time, error) {
			defer c.end()
			c.begin(key)
			if works {
				works = false
				return Patch, time.Time{}, nil
			}
			return Patch, time.Time{}, apierrors.NewInternalError(errors.New("no space"))
		})
		q.Add("a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		works = true
		before := c.of["a"]
		time.Sleep(2 * time.Minute) // one that works, and then at 0.2, 0.6, 1.4 ...
		synctest.Wait()
		if got := c.of["a"] - before; got < 6 {
			t.Errorf("it was made %d times", got)
		}
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
