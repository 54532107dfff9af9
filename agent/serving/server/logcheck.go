package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

// The interval between flushes of the log, and the time without a flush after which it counts as
// blocked.
const (
	flushEvery = time.Minute
	blocked    = 2 * time.Minute
)

// logCheck is the health check "log": it fails if writing the log blocks.
type logCheck struct {
	flush   func()
	flushed atomic.Pointer[time.Time]
}

func newLogCheck() *logCheck {
	l := &logCheck{flush: klog.Flush}
	l.mark()
	return l
}

func (l *logCheck) mark() { l.flushed.Store(new(time.Now())) }

func (l *logCheck) run(ctx context.Context) error {
	tick := time.Tick(flushEvery)
	for await.On(ctx, tick) {
		l.flush()
		l.mark()
	}
	return nil
}

func (l *logCheck) check(*http.Request) error {
	if since := time.Since(*l.flushed.Load()); since > blocked {
		return fmt.Errorf("logging blocked for %s", since.Round(time.Second))
	}
	return nil
}
