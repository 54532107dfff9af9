package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// subject is the plugin as something that starts and ends. The bench alone uses it.
type subject interface {
	// start starts it, unless it runs.
	start(Dirs) error
	// stop asks it to end, and reports whether it did in time; what still runs then is killed.
	stop(most time.Duration) (inTime bool)
	// kill ends it at once, without a word. It can only be killed if it says so.
	kill()
	can() abilities
	// fate says how it ended; nil while it runs, and for one that is not ours to start.
	fate() *ending
}

// abilities are what can be done to a plugin.
type abilities struct{ start, kill bool }

// ending is how a plugin ended.
type ending struct {
	err error
	// words are the last that it wrote.
	words string
}

func (e *ending) String() string {
	text := "it ended"
	if e.err != nil {
		text = fmt.Sprintf("it ended (%v)", e.err)
	}
	if e.words != "" {
		text += "; its last words: " + e.words
	}
	return text
}

// life is from a start to the end after it, which the pulse tells of.
type life struct {
	pulse *pulse

	mu   sync.Mutex
	done chan struct{}
	end  *ending
}

func (l *life) runsLocked() bool { return l.done != nil && l.end == nil }

// beginLocked begins a life that lasts until last returns, which is how it ended.
func (l *life) beginLocked(last func() *ending) {
	done := make(chan struct{})
	l.done, l.end = done, nil
	go func() {
		defer close(done)
		end := last()
		l.mu.Lock()
		l.end = end
		l.mu.Unlock()
		l.pulse.beat()
	}()
}

func (l *life) fate() *ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// attached is a plugin that somebody else has started.
type attached struct{}

func (attached) start(Dirs) error        { return nil }
func (attached) stop(time.Duration) bool { return true }
func (attached) kill()                   {}
func (attached) can() abilities          { return abilities{} }
func (attached) fate() *ending           { return nil }

// killing is how long a plugin in this process may take to end that should end at once.
const killing = 5 * time.Second

// function is a plugin in this process.
type function struct {
	run func(context.Context, Dirs) error
	life
	cancel context.CancelFunc // under its lock
}

func (f *function) start(dirs Dirs) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runsLocked() {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.beginLocked(func() *ending {
		err := f.run(ctx, dirs)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return &ending{err: err}
	})
	return nil
}

func (f *function) stop(most time.Duration) bool {
	f.mu.Lock()
	cancel, done := f.cancel, f.done
	f.mu.Unlock()
	if done == nil {
		return true
	}
	cancel()
	select {
	case <-done:
		return true
	case <-time.After(most):
		return false
	}
}

func (f *function) kill()          { f.stop(killing) }
func (f *function) can() abilities { return abilities{start: true} }
