package lifecycle

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

// moody is a runtime that can delay its list; nil: it does not.
type moody struct {
	*fake
	mood atomic.Pointer[func(context.Context) error]
}

func (m *moody) Pods(ctx context.Context) ([]cri.Pod, error) {
	if mood := m.mood.Load(); mood != nil {
		if err := (*mood)(ctx); err != nil {
			return nil, err
		}
	}
	return m.fake.Pods(ctx)
}

// TestHealthIsReported: health is published when the runtime is listed for the first time, when it has
// not been for three minutes, whether it fails or hangs, and when it is again; and at no other
// time.
func TestHealthIsReported(t *testing.T) {
	for _, name := range []string{"fails", "hangs"} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { healthIsReported(t, name) }) })
	}
}

func healthIsReported(t *testing.T, how string) {
	over := make(chan struct{})
	sick := map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("runtime is down") },
		"hangs": func(ctx context.Context) error {
			select {
			case <-over:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}[how]
	m := &moody{fake: newFake()}
	o, err := New(Config{Client: m})
	if err != nil {
		t.Fatal(err)
	}
	reported := mailbox.Subscribe(o.Health())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	expect := func(when string, want, healthy bool) {
		t.Helper()
		synctest.Wait()
		got := false
		select {
		case <-reported:
			got = true
		default:
		}
		if err := o.Healthy(time.Now()); got != want || (err == nil) != healthy {
			t.Errorf("%s: told %v, want %v; %v", when, got, want, err)
		}
	}
	expect("listed for the first time", true, true)
	time.Sleep(time.Hour)
	expect("listed again and again", false, true)
	m.mood.Store(&sick)
	last := o.schedule.lastRelist()
	time.Sleep(time.Until(last.Add(staleAfter)))
	expect("not listed for three minutes", false, true)
	time.Sleep(time.Nanosecond)
	expect("not listed for longer", true, false)
	time.Sleep(time.Hour)
	expect("not listed for an hour", false, false)
	m.mood.Store(nil)
	close(over)
	time.Sleep(time.Second)
	expect("listed again", true, true)
	m.mood.Store(&sick)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	time.Sleep(time.Hour)
	expect("when it has ended", false, false)
}
