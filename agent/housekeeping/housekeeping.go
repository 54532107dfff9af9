// Package housekeeping does what nobody waits for, from time to time or soon after something
// changed. One goroutine does it, one task after the other.
package housekeeping

import (
	"cmp"
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/topology/await"
)

// Task is something to do every Period, for the first time after First or, if that is 0, one Period,
// and besides after a change that is published On. A task that finds nothing to do costs little.
type Task struct {
	Name          string
	Period, First time.Duration
	On            []mailbox.Source
	Run           func(ctx context.Context) error
}

// rest is the least time between two rounds: what comes in a burst is looked at once.
const rest = 50 * time.Millisecond

// Housekeeping does its tasks.
type Housekeeping struct {
	tasks []scheduled
	// changed has a value when one of the tasks' own has.
	changed <-chan struct{}
}

type scheduled struct {
	Task
	changed <-chan struct{}
	due     time.Time
}

// New makes a table of tasks, which are done in its order.
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

// Run does the tasks until ctx ends. What a task fails with is logged and the task done again in
// its time.
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

// round does what is to be done now, and says when to look again.
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
