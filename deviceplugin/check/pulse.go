package check

import (
	"context"
	"sync"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// pulse wakes waiters whenever something has changed.
type pulse struct {
	mu   sync.Mutex
	next chan struct{}
}

func newPulse() *pulse { return &pulse{next: make(chan struct{})} }

// beat wakes all waiters after a change.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.next)
	p.next = make(chan struct{})
}

func (p *pulse) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// until waits for a condition for at most most, and reports whether it holds.
func (p *pulse) until(ctx context.Context, most time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		next := p.wait()
		if holds() {
			return true
		}
		if !await.On(ctx, next) {
			return holds()
		}
	}
}
