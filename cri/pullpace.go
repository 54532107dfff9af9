package cri

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// pullPace lets pulls begin at a rate. A pull that comes too early waits: a container's first start
// before restarts, so that containers that crash all the time and are pulled each time keep no pod
// from its first image, and then in the order of arrival. Restarts that have waited for mostWait
// alternate with first starts, so that many that become overdue together stop no pod either.
type pullPace struct {
	limiter flowcontrol.RateLimiter
	every   time.Duration // between two pulls, when all waited for is that

	mu        sync.Mutex // guards what follows
	waiting   []*pullWaiter
	restarted bool // the last pull was a restart's

	// pump is held by the one waiter that lets pulls begin. Capacity 1.
	pump chan struct{}
}

// pullWaiter is a pull that waits until it may begin.
type pullWaiter struct {
	restart bool
	since   time.Time
	comes   chan struct{} // closed when it may begin
}

// mostWait is how long a restart lets first starts go first.
const mostWait = 30 * time.Second

// newPullPace takes a rate of 0 for none.
func newPullPace(qps float32, burst int) *pullPace {
	p := &pullPace{limiter: flowcontrol.NewFakeAlwaysRateLimiter(), pump: make(chan struct{}, 1)}
	if qps > 0 {
		p.limiter = flowcontrol.NewTokenBucketRateLimiter(qps, max(burst, 1))
		p.every = time.Duration(float32(time.Second) / qps)
	}
	p.pump <- struct{}{}
	return p
}

// wait returns when a pull may begin, or with the context's error.
func (p *pullPace) wait(ctx context.Context, restart bool) error {
	waiter := &pullWaiter{restart: restart, since: time.Now(), comes: make(chan struct{})}
	p.give(waiter)
	select {
	case <-waiter.comes:
		return nil
	case <-ctx.Done():
	case <-p.pump:
		p.giveUntil(ctx, waiter)
		p.pump <- struct{}{}
	}
	return p.leave(ctx, waiter)
}

// giveUntil lets pulls begin until that one may, or ctx ends.
func (p *pullPace) giveUntil(ctx context.Context, waiter *pullWaiter) {
	for {
		select {
		case <-waiter.comes:
			return
		case <-ctx.Done():
			return
		case <-time.After(p.every):
			p.give()
		}
	}
}

// leave returns nil if the pull may begin. Otherwise it gives up the place and returns ctx's error.
func (p *pullPace) leave(ctx context.Context, waiter *pullWaiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.waiting, waiter)
	if at < 0 {
		return nil
	}
	p.waiting = slices.Delete(p.waiting, at, at+1)
	return ctx.Err()
}

// give adds waiting pulls, and lets as many pulls begin as the rate allows.
func (p *pullPace) give(more ...*pullWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, more...)
	for len(p.waiting) > 0 && p.limiter.TryAccept() {
		next := p.nextLocked(time.Now())
		p.restarted = p.waiting[next].restart
		close(p.waiting[next].comes)
		p.waiting = slices.Delete(p.waiting, next, next+1)
	}
}

// nextLocked returns the index of the next pull; there must be one.
func (p *pullPace) nextLocked(now time.Time) int {
	first := slices.IndexFunc(p.waiting, func(t *pullWaiter) bool { return !t.restart })
	overdue := slices.IndexFunc(p.waiting, func(t *pullWaiter) bool {
		return t.restart && now.Sub(t.since) >= mostWait
	})
	if first < 0 || overdue >= 0 && !p.restarted {
		return max(overdue, 0)
	}
	return first
}
