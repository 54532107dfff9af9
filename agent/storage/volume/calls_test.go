package volume

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A caller of a call that hangs gives up at its timeout; the next one waits for the same call and
// gets its result. Calls of other names are not blocked.
func TestCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		began, release := 0, make(chan struct{})
		hang := func() error {
			began++
			<-release
			return errors.New("at last")
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := c.do(ctx, "mount a", hang)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "mount a has not come back yet") {
				t.Errorf("got %v", err)
			}
		}
		if err := c.do(t.Context(), "mount b", func() error { return nil }); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { close(release) })
		if err := c.do(t.Context(), "mount a", hang); err == nil || err.Error() != "at last" {
			t.Errorf("got %v", err)
		}
		if began != 1 || len(c.running) != 0 {
			t.Errorf("it was called %d times; %d calls go on", began, len(c.running))
		}
	})
}

// No call starts after the timeout.
func TestCallsTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var c calls
	err := c.do(ctx, "mount", func() error {
		t.Error("it was called")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
