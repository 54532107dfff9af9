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
	// noEventsRetry is the period for asking a runtime without events whether it has them now.
	noEventsRetry = 5 * time.Minute
	maxBackoff    = 30 * time.Second
)

// relistLoop compares the runtime with the cache periodically.
func (p *PLEG) relistLoop(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		start := time.Now()
		err := p.relist(ctx, start)
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
			p.schedule.setHurry(true)
		}
		p.schedule.wait(ctx, start)
	}
}

func (p *PLEG) relist(ctx context.Context, start time.Time) error {
	p.schedule.setHurry(false)
	seq := p.cache.beginList()
	pods, err := p.cfg.Client.Pods(ctx)
	if err != nil {
		return err
	}
	readAt := start
	if len(pods) > 0 {
		readAt = pods[0].ReadAt
	}
	outdated := p.cache.outdated(seq, readAt, pods)
	p.first.expect(outdated)
	for _, uid := range outdated {
		p.reads.add(uid, time.Now())
	}
	p.metrics.relisted(start, p.schedule.relisted(start))
	return nil
}

// eventLoop receives the runtime's events, and reconnects when the stream ends.
func (p *PLEG) eventLoop(ctx context.Context) {
	pauses := await.Pauses{First: p.cfg.RelistPeriod, Last: maxBackoff}
	failed := 0
	reported := false
	for ctx.Err() == nil {
		start := time.Now()
		p.schedule.setStream(start)
		err := p.cfg.Client.Events(ctx, p.metrics.streams.Inc, p.event)
		p.schedule.setStream(time.Time{})
		p.schedule.hasten()
		if ctx.Err() != nil {
			return
		}
		p.metrics.streamErrors.Inc()
		if time.Since(start) > maxBackoff {
			failed, reported = 0, false
		}
		if !reported {
			klog.FromContext(ctx).Info("No container events, relisting more often instead",
				"period", p.cfg.RelistPeriod, "err", err)
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

// event queues a read of the event's pod. The agent itself creates and starts containers, and its
// workers read the pod then.
func (p *PLEG) event(e cri.Event) {
	p.metrics.eventLatency.Observe(max(0, time.Since(e.At)).Seconds())
	if e.Type == cri.EventCreated || e.Type == cri.EventStarted {
		return
	}
	uid := e.PodUID
	if uid == "" {
		var ok bool
		if uid, ok = p.cache.owner(e.ContainerID); !ok {
			if e.Type != cri.EventDeleted { // a container that is gone needs no list
				p.schedule.hasten()
			}
			return
		}
	}
	asked := time.Now()
	if !p.endings.has(uid) {
		p.reads.add(uid, asked)
		return
	}
	p.later.add(func() { // the read is dropped if the pod was read by then, or is gone
		if _, known := p.cache.get(uid); known {
			p.reads.add(uid, asked)
		}
	})
}
