package cri

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/numalet/numalet/topology/await"
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
	pumping   bool // somebody will look again
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
	if qps <= 0 {
		return &pullPace{limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	}
	return &pullPace{
		limiter: flowcontrol.NewTokenBucketRateLimiter(qps, max(burst, 1)),
		every:   time.Duration(float32(time.Second) / qps),
	}
}

// wait returns when a pull may begin, or with the context's error.
func (p *pullPace) wait(ctx context.Context, restart bool) error {
	turn := &pullTurn{restart: restart, since: time.Now(), comes: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, turn)
	p.giveLocked()
	p.mu.Unlock()
	if !await.On(ctx, turn.comes) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting = slices.DeleteFunc(p.waiting, func(t *pullTurn) bool { return t == turn })
		return ctx.Err()
	}
	return nil
}

// giveLocked gives the turns that the rate allows, and sees to the next.
func (p *pullPace) giveLocked() {
	for len(p.waiting) > 0 && p.limiter.TryAccept() {
		next := p.nextLocked(time.Now())
		p.restarted = p.waiting[next].restart
		close(p.waiting[next].comes)
		p.waiting = slices.Delete(p.waiting, next, next+1)
	}
	if len(p.waiting) == 0 || p.pumping {
		return
	}
	p.pumping = true
	time.AfterFunc(p.every, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pumping = false
		p.giveLocked()
	})
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
