package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

// schedule decides when the next relist is due: after quick, or after slow while an event stream is
// trusted.
type schedule struct {
	quick, slow time.Duration
	kick        chan struct{} // capacity 1: look again at what is due

	mu       sync.Mutex
	last     time.Time   // start of the last relist that succeeded
	streamUp time.Time   // start of the current event stream; zero: none
	hurry    bool        // relist after quick, whatever the stream
	stale    *time.Timer // publishes health when last is too old; nil: there was no relist

	health mailbox.Topic // Healthy's answer changed
}

func newSchedule(quick, slow time.Duration) *schedule {
	return &schedule{quick: quick, slow: slow, kick: make(chan struct{}, 1)}
}

// period trusts a stream after two quick periods: runtimes do not say when they begin to send.
func (s *schedule) period() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	trusted := !s.streamUp.IsZero() && time.Since(s.streamUp) >= 2*s.quick
	if trusted && !s.hurry {
		return s.slow
	}
	return s.quick
}

// wait returns when the relist after the one begun at start is due, or ctx ends.
func (s *schedule) wait(ctx context.Context, start time.Time) {
	for ctx.Err() == nil {
		wait := time.Until(start.Add(s.period()))
		if wait <= 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-s.kick:
		case <-ctx.Done():
		}
	}
}

// hasten makes the next relist due after quick.
func (s *schedule) hasten() {
	s.setHurry(true)
	await.Wake(s.kick)
}

func (s *schedule) setHurry(hurry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry = hurry
}

// setStream records when a stream began; zero: it ended.
func (s *schedule) setStream(up time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamUp = up
}

// relisted records a relist that succeeded and returns the start of the one before. It publishes
// that the runtime is observed again, and schedules the publication for when it has not been for
// staleAfter.
func (s *schedule) relisted(start time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	s.last = start
	if time.Since(before) > staleAfter {
		s.health.Publish()
	}
	left := time.Until(start.Add(staleAfter)) + time.Nanosecond
	if s.stale == nil {
		s.stale = time.AfterFunc(left, s.health.Publish)
	} else {
		s.stale.Reset(left)
	}
	return before
}

// end stops the scheduled publication.
func (s *schedule) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale != nil {
		s.stale.Stop()
	}
}

func (s *schedule) lastRelist() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
