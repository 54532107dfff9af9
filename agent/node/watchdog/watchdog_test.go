package watchdog

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestNew(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for name, test := range map[string]struct {
		usec, pid string
		period    time.Duration
		err       string
	}{
		"none":              {},
		"for us":            {usec: "30000000", pid: own, period: 30 * time.Second},
		"for whoever reads": {usec: "30000000", period: 30 * time.Second},
		"for another":       {usec: "30000000", pid: "1"},
		"not a number":      {usec: "soon", err: "read WATCHDOG_USEC and WATCHDOG_PID: "},
		"negative":          {usec: "-1", err: "read WATCHDOG_USEC"},
		"too short":         {usec: "1000000", err: "the watchdog's period of 1s is too short; give"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", test.usec)
			t.Setenv("WATCHDOG_PID", test.pid)
			w, err := New(nil)
			if w.period != test.period || (err == nil) != (test.err == "") ||
				err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%v, %v", w.period, err)
			}
		})
	}
	if err := (Watchdog{}).Run(t.Context()); err != nil {
		t.Errorf("without a watchdog: %v", err)
	}
}

// TestRun: systemd hears of an agent that is well, and nothing of one that is not.
func TestRun(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	var asked atomic.Int64
	ill := int64(3) // the answer that is an error, and all after it
	w := Watchdog{period: 20 * time.Millisecond, healthy: func() error {
		if asked.Add(1) >= ill {
			return errors.New("stuck")
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for asked.Load() < 2*ill {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	reported := int64(0)
	for buf := make([]byte, 100); ; reported++ {
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			break
		}
		if string(buf[:n]) != "WATCHDOG=1" {
			t.Errorf("told %q", buf[:n])
		}
	}
	if reported != ill-1 {
		t.Errorf("told %d times, want %d", reported, ill-1)
	}
}
