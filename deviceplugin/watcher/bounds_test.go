package watcher

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Events that come while the pause after a scan lasts are seen by one scan, when it is over; an event
// after that, and the tick, are seen at once.
func TestEventsComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notify := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		tick := make(chan time.Time)
		f := &followed{sockets: map[string]*socket{}}
		for _, tt := range []struct {
			events      int
			every       time.Duration
			tick        time.Duration // when; 0: never
			pause, want time.Duration
		}{
			{events: 1000, every: time.Millisecond, pause: 3 * time.Second, want: 3 * time.Second},
			{events: 1, every: 5 * time.Second, pause: 3 * time.Second, want: 5 * time.Second},
			{events: 1, every: time.Second, want: time.Second},
			{tick: 2 * time.Second, pause: 3 * time.Second, want: 3 * time.Second},
			{tick: 4 * time.Second, pause: 3 * time.Second, want: 4 * time.Second},
		} {
			go func() {
				for range tt.events {
					time.Sleep(tt.every)
					notify.Events <- fsnotify.Event{Name: "a", Op: fsnotify.Create}
				}
				if tt.tick > 0 {
					time.Sleep(tt.tick)
					tick <- time.Now()
				}
			}()
			began := time.Now()
			if !f.await(t.Context(), tt.pause, tick, notify) || time.Since(began) != tt.want {
				t.Errorf("%+v: the next scan is after %v", tt, time.Since(began))
			}
			synctest.Wait()
		}
	})
}

// A plugin that was refused is asked again once there is a place for it.
func TestAttemptsAgainHavePlaces(t *testing.T) {
	h := newHost(t, 10*time.Millisecond)
	for range againAtOnce {
		h.watcher.again <- struct{}{}
	}
	h.refuse <- errors.New("not now")
	h.plugin("late", "late.sock")
	next(t, "the first attempt", h.asked)
	select {
	case <-h.asked:
		t.Error("asked again although all places are taken")
	case <-time.After(100 * time.Millisecond):
	}
	<-h.watcher.again
	next(t, "the second attempt", h.asked)
}

// A new plugin is asked although more sockets than are tried again at a time never answer.
func TestMuteSocketsKeepNoneFromBeingAsked(t *testing.T) {
	h := newHost(t, 10*time.Millisecond, func(c *Config) {
		c.Deadlines = Deadlines{Dial: time.Hour}
	})
	for i := range 2 * againAtOnce {
		l, err := net.Listen("unix", filepath.Join(h.dir, "mute"+string(rune('A'+i))))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	h.plugin("good", "good.sock")
	if p := next(t, "the good plugin", h.asked); p.Name != "good" {
		t.Errorf("asked %+v", p)
	}
}

// The attempt at a socket that refuses connections ends long before a plugin's deadline, and says why.
func TestDeadSocketIsLeft(t *testing.T) {
	failures := make(chan error, 100)
	h := newHost(t, 10*time.Millisecond, func(c *Config) {
		c.Deadlines = Deadlines{Dial: time.Hour}
		c.Called = func(_ Plugin, _ string, _ time.Duration, err error) { failures <- err }
	})
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(h.dir, "dead.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := next(t, "an attempt", failures)
		if err == nil || !strings.HasSuffix(err.Error(), "connection refused") {
			t.Errorf("the attempt ends with %v", err)
		}
	}
}
