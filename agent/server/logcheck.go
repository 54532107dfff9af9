package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/topology/await"
)

// The log is flushed this often, and counts as blocked when it has not come back for so long.
const (
	flushEvery = time.Minute
	blocked    = 2 * time.Minute
)

// logCheck is the health check "log": does writing the log block?
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
