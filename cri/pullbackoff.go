package cri

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
)

// After a failure, pulls of an image for a pod wait 10 s; each further failure doubles this, up to
// 5 minutes. A failure without a successor is forgotten after 10 minutes.
const (
	pullBackOffFirst = 10 * time.Second
	pullBackOffMax   = 5 * time.Minute
	// pullFailureShown is how long the status shows a failure before it shows the back-off.
	pullFailureShown = time.Second
)

type failureKey struct {
	pod   types.UID
	image string
}

// pullFailures records failed pulls. The zero value is ready.
type pullFailures struct {
	mu     sync.Mutex
	failed map[failureKey]pullFailure
}

type pullFailure struct {
	at    time.Time
	delay time.Duration
	err   error
}

// backedOff returns the end of the back-off of key and the failure that caused it. Without a
// back-off the error is nil.
func (f *pullFailures) backedOff(key failureKey, now time.Time) (until time.Time, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failure, ok := f.failed[key]
	if !ok || !now.Before(failure.at.Add(failure.delay)) {
		return time.Time{}, nil
	}
	return failure.at.Add(failure.delay), failure.err
}

// add records a failed pull.
func (f *pullFailures) add(key failureKey, err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = map[failureKey]pullFailure{}
	}
	maps.DeleteFunc(f.failed, func(_ failureKey, old pullFailure) bool {
		return now.Sub(old.at) > 2*pullBackOffMax
	})
	pauses := await.Pauses{First: pullBackOffFirst, Last: pullBackOffMax}
	f.failed[key] = pullFailure{at: now, delay: pauses.Next(f.failed[key].delay), err: err}
}

// forget drops the failures of key, whose image is present now.
func (f *pullFailures) forget(key failureKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, key)
}
