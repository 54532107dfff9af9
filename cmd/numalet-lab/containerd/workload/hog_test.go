package workload

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHog: it takes what it is told of each, until it is told to stop.
func TestHog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- hog{memory: 40, disk: 40, threads: 40, file: file}.run(ctx) }()
	for size := int64(0); size < 4<<20; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(file); err == nil {
			size = info.Size()
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 4 {
		t.Errorf("%d threads, %v", len(tasks), err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := (hog{disk: 1, file: "/dev/full"}).run(t.Context()); err == nil {
		t.Error("a full disk is no error")
	}
}
