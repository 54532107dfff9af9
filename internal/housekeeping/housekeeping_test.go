package housekeeping

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/internal/mailbox"
)

// A task runs every period, even if it fails, and soon after a change; many changes at once make it
// run once.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var changes, others mailbox.Topic
		var done []string
		note := func(name string) func(context.Context) error {
			return func(context.Context) error {
				done = append(done, name)
				return errors.New("no")
			}
		}
		h := New(
			Task{Name: "often", Period: 2 * time.Second, Run: note("often")},
			Task{
				Name: "on change", Period: time.Hour, On: []mailbox.Source{&changes},
				Run: note("on change"),
			},
			Task{Name: "soon", Period: time.Hour, First: time.Second, Run: note("soon")},
			Task{Name: "other", Period: time.Hour, On: []mailbox.Source{&others}, Run: note("other")},
		)
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		for _, step := range []struct {
			publish func()
			wait    time.Duration
			want    []string
		}{
			{func() {}, 7 * time.Second, []string{"soon", "often", "often", "often"}},
			{
				func() {
					for range 10 {
						changes.Publish()
					}
				}, 500 * time.Millisecond, []string{"on change"},
			},
			{func() {}, time.Second, []string{"often"}},
			{others.Publish, 100 * time.Millisecond, []string{"other"}},
		} {
			step.publish()
			time.Sleep(step.wait)
			synctest.Wait()
			if !slices.Equal(done, step.want) {
				t.Errorf("done %q, want %q", done, step.want)
			}
			done = nil
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
