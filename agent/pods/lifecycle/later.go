package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// later runs functions settle after they were added, in that order.
type later struct {
	wake chan struct{} // capacity 1: there may be something to do

	mu  sync.Mutex
	due []deferred
}

type deferred struct {
	at time.Time
	do func()
}

func newLater() *later { return &later{wake: make(chan struct{}, 1)} }

// add schedules do, which must not block.
func (l *later) add(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = append(l.due, deferred{time.Now().Add(settle), do})
	await.Wake(l.wake)
}

// run runs the functions that are due until ctx ends.
func (l *later) run(ctx context.Context) {
	for ctx.Err() == nil {
		do, next := l.take(time.Now())
		if do != nil {
			do()
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-await.At(next):
		}
	}
}

// take returns a function that is due, or when the next one will be; zero: there is none.
func (l *later) take(now time.Time) (do func(), next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) == 0 {
		return nil, time.Time{}
	}
	if first := l.due[0]; first.at.After(now) {
		return nil, first.at
	}
	do = l.due[0].do
	l.due = l.due[1:]
	return do, time.Time{}
}
