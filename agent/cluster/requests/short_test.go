package requests

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/numalet/numalet/internal/oneline"
)

// However much an API server says, the log has a line of it.
func TestFailuresAreLoggedInALine(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logger), 10*time.Second)
	defer cancel()
	q := New("test", func(context.Context, string) (Verb, time.Time, error) {
		return Patch, time.Time{}, errors.New(strings.Repeat("denied\n", 100_000))
	})
	q.Add("a")
	defer q.keys.ShutDown()
	if !q.work(ctx) {
		t.Fatal("the queue is over")
	}
	said := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if !strings.Contains(said, "denied denied") || len(said) > oneline.Most+500 ||
		strings.Count(said, "\n") > 1 {
		t.Errorf("%d bytes are logged: %.200q", len(said), said)
	}
}
