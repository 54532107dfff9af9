package cri

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// pullPace lets pulls begin at a rate. Who comes too early waits: a container's first start before
// restarts, so that containers that crash all the time and are pulled each time keep no pod from
// its first image, and then in the order of arrival. Restarts that have waited for mostWait take
// turns with first starts, so that many that become overdue together stop no pod either.
type pullPace struct {
	limiter flowcontrol.RateLimiter
	every   time.Duration // between two pulls, when all waited for is that

	mu        sync.Mutex // guards what follows
	waiting   []*pullTurn
	restarted bool // the last turn was a restart's

	// pump is held by the one waiter that gives the turns. Capacity 1.
	pump chan struct{}
}

// pullTurn is a pull that waits for its turn.
type pullTurn struct {
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
	turn := &pullTurn{restart: restart, since: time.Now(), comes: make(chan struct{})}
	p.give(turn)
	select {
	case <-turn.comes:
		return nil
	case <-ctx.Done():
	case <-p.pump:
		p.giveUntil(ctx, turn)
		p.pump <- struct{}{}
	}
	return p.leave(ctx, turn)
}

// giveUntil gives turns until that one has come, or ctx ends.
func (p *pullPace) giveUntil(ctx context.Context, turn *pullTurn) {
	for {
		select {
		case <-turn.comes:
			return
		case <-ctx.Done():
			return
		case <-time.After(p.every):
			p.give()
		}
	}
}

// leave is nil if the turn has come, or else ctx's error; it comes no more then.
func (p *pullPace) leave(ctx context.Context, turn *pullTurn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.waiting, turn)
	if at < 0 {
		return nil
	}
	p.waiting = slices.Delete(p.waiting, at, at+1)
	return ctx.Err()
}

// give gives the turns that the rate allows, to those who wait and more.
func (p *pullPace) give(more ...*pullTurn) {
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

// nextLocked is whose turn it is; somebody has to wait.
func (p *pullPace) nextLocked(now time.Time) int {
	first := slices.IndexFunc(p.waiting, func(t *pullTurn) bool { return !t.restart })
	overdue := slices.IndexFunc(p.waiting, func(t *pullTurn) bool {
		return t.restart && now.Sub(t.since) >= mostWait
	})
	if first < 0 || overdue >= 0 && !p.restarted {
		return max(overdue, 0)
	}
	return first
}
