package lifecycle

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

const (
	// noEventsRetry is how often a runtime without events is asked whether it has them now.
	noEventsRetry = 5 * time.Minute
	maxBackoff    = 30 * time.Second
)

// relistLoop compares the runtime with the cache again and again.
func (o *Observer) relistLoop(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		start := time.Now()
		err := o.relist(ctx, start)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			klog.FromContext(ctx).Error(err, "Runtime cannot be listed, pods are not observed")
		case err == nil && failing:
			klog.FromContext(ctx).Info("Runtime can be listed again")
		}
		failing = err != nil
		if failing {
			o.schedule.setHurry(true)
		}
		o.schedule.wait(ctx, start)
	}
}

func (o *Observer) relist(ctx context.Context, start time.Time) error {
	o.schedule.setHurry(false)
	seq := o.cache.beginList()
	pods, err := o.cfg.Client.Pods(ctx)
	if err != nil {
		return err
	}
	readAt := start
	if len(pods) > 0 {
		readAt = pods[0].ReadAt
	}
	outdated := o.cache.outdated(seq, readAt, pods)
	o.first.lacks(outdated)
	for _, uid := range outdated {
		o.reads.add(uid, time.Now())
	}
	o.metrics.relisted(start, o.schedule.relisted(start))
	return nil
}

// eventLoop listens to the runtime, and tries again when the stream ends.
func (o *Observer) eventLoop(ctx context.Context) {
	pauses := await.Pauses{First: o.cfg.RelistPeriod, Last: maxBackoff}
	failed := 0
	reported := false
	for ctx.Err() == nil {
		start := time.Now()
		o.schedule.setStream(start)
		err := o.cfg.Client.Events(ctx, o.metrics.streams.Inc, o.event)
		o.schedule.setStream(time.Time{})
		o.schedule.soon()
		if ctx.Err() != nil {
			return
		}
		o.metrics.streamErrors.Inc()
		if time.Since(start) > maxBackoff {
			failed, reported = 0, false
		}
		if !reported {
			klog.FromContext(ctx).Info("No container events, relisting more often instead",
				"period", o.cfg.RelistPeriod, "err", err)
			reported = true
		}
		wait := pauses.After(failed)
		if errors.Is(err, cri.ErrNoEvents) {
			wait = noEventsRetry
		}
		failed++
		await.For(ctx, wait)
	}
}

// event asks for the pod to be read. What was created or started is our own doing and read by
// whoever did it.
func (o *Observer) event(e cri.Event) {
	o.metrics.eventLatency.Observe(max(0, time.Since(e.At)).Seconds())
	if e.Type == cri.EventCreated || e.Type == cri.EventStarted {
		return
	}
	uid := e.PodUID
	if uid == "" {
		var ok bool
		if uid, ok = o.cache.owner(e.ContainerID); !ok {
			if e.Type != cri.EventDeleted { // else what is gone is known to be gone
				o.schedule.soon()
			}
			return
		}
	}
	if o.endings.has(uid) {
		o.readLater(uid, time.Now())
		return
	}
	o.reads.add(uid, time.Now())
}
