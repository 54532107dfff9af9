// Package housekeeping does what has to be done from time to time whatever happens.
package housekeeping

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// Task is something to do every Period, for the first time after one Period.
type Task struct {
	Name   string
	Period time.Duration
	Run    func(ctx context.Context) error
}

// Tasks are all there are. One that takes long, or hangs, holds up no other.
type Tasks []Task

// Run does the tasks until ctx ends. What a task fails with is logged and the task done again in
// its time.
func (t Tasks) Run(ctx context.Context) error {
	var group errgroup.Group
	for _, task := range t {
		group.Go(func() error {
			task.repeat(ctx)
			return nil
		})
	}
	return group.Wait()
}

func (t Task) repeat(ctx context.Context) {
	tick := time.NewTicker(t.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := t.Run(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Housekeeping failed", "task", t.Name, "err", err)
		}
	}
}
