// Package housekeeping runs background tasks, periodically or soon after a change; no caller waits for
// them. One goroutine runs them one after the other.
package housekeeping

import (
	"cmp"
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// Task runs every Period, first after First or, if that is 0, one Period, and after each change
// published On. A task without work should cost little.
type Task struct {
	Name          string
	Period, First time.Duration
	On            []mailbox.Source
	Run           func(ctx context.Context) error
}

// rest is the least time between two rounds, so that a burst of changes makes one round.
const rest = 50 * time.Millisecond

// Housekeeping runs its tasks.
type Housekeeping struct {
	tasks []scheduled
	// changed receives an element when one of the tasks' own channels does.
	changed <-chan struct{}
}

type scheduled struct {
	Task
	changed <-chan struct{}
	due     time.Time
}

// New returns a table of tasks, which run in its order.
func New(tasks ...Task) *Housekeeping {
	h := &Housekeeping{}
	var all []mailbox.Source
	for _, t := range tasks {
		h.tasks = append(h.tasks, scheduled{Task: t, changed: mailbox.Subscribe(t.On...)})
		all = append(all, t.On...)
	}
	h.changed = mailbox.Subscribe(all...)
	return h
}

// Run runs the tasks until ctx ends. It logs the error of a task, which runs again at its next
// time.
func (h *Housekeeping) Run(ctx context.Context) error {
	for i := range h.tasks {
		h.tasks[i].due = time.Now().Add(cmp.Or(h.tasks[i].First, h.tasks[i].Period))
	}
	for {
		next := await.At(h.round(ctx))
		select {
		case <-ctx.Done():
		case <-next:
		case <-h.changed:
		}
		if !await.For(ctx, rest) {
			return nil
		}
	}
}

// round runs the tasks that are due, and returns when the next one is.
func (h *Housekeeping) round(ctx context.Context) (next time.Time) {
	for i := range h.tasks {
		t := &h.tasks[i]
		select {
		case <-t.changed:
			t.due = time.Now()
		default:
		}
		if now := time.Now(); !t.due.After(now) && ctx.Err() == nil {
			t.due = now.Add(t.Period)
			if err := t.Run(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("Housekeeping failed", "task", t.Name, "err", err)
			}
		}
		next = await.Earlier(next, t.due)
	}
	return next
}
