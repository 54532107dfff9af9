package stats

import (
	"context"
	"sync"
	"time"

	"github.com/numalet/numalet/internal/await"
)

const (
	// fresh is how long a value is told without reading again.
	fresh = time.Second
	// patience is how long one reading may take. Prometheus waits 10 s for two of them.
	patience = 4 * time.Second
)

// latest caches a value that is expensive to read. One caller reads it, and concurrent ones wait.
type latest[T any] struct {
	read func(ctx context.Context, last T) (T, error)

	mu      sync.Mutex
	value   T
	err     error // of the last reading
	readAt  time.Time
	reading chan struct{} // closed when the reading has ended; nil: none goes on
}

// get is the value of a reading that is at most a second old, or of the last that ended when the
// caller has no more time. With an error the value is that of an earlier reading, if any.
func (l *latest[T]) get(ctx context.Context) (T, error) { return l.within(ctx, fresh) }

// within is get for a caller that an older value is good enough for.
func (l *latest[T]) within(ctx context.Context, age time.Duration) (T, error) {
	last, others := l.begin(age)
	switch {
	case others != nil:
		await.On(ctx, others)
	case last != nil:
		l.update(ctx, *last)
	}
	return l.said()
}

// begin says what the caller is to do: wait for the reading of others, or read itself, beginning with
// the last value, or neither, as the value is fresh.
func (l *latest[T]) begin(age time.Duration) (last *T, others <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.readAt.IsZero() && time.Since(l.readAt) < age:
		return nil, nil
	case l.reading != nil:
		return nil, l.reading
	default:
		l.reading = make(chan struct{})
		value := l.value
		return &value, nil
	}
}

func (l *latest[T]) said() (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.err
}

// update reads for all callers that wait, even if its own caller gives up.
func (l *latest[T]) update(ctx context.Context, last T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	value, err := l.read(ctx, last)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value, l.err, l.readAt = value, err, time.Now()
	close(l.reading)
	l.reading = nil
}
