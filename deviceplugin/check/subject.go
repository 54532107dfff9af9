package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
)

// subject starts and ends the plugin. Only the bench uses it.
type subject interface {
	// Start starts the plugin, unless it runs.
	Start(Dirs) error
	// Stop asks it to end, and reports whether it did in time; a process that still runs then is
	// killed.
	Stop(most time.Duration) (inTime bool)
	// Kill ends it without warning, if abilities.kill allows that; else it only stops it.
	Kill()
	// Fate says how it ended; nil while it runs, and if it is not ours to start.
	Fate() *Ending
}

// abilities say what the bench can do to a plugin.
type abilities struct{ start, kill bool }

// Ending is how a plugin ended.
type Ending struct {
	err error
	// words are the last words of its output.
	words string
}

func (e *Ending) String() string {
	text := "it ended"
	if e.err != nil {
		text = fmt.Sprintf("it ended (%v)", e.err)
	}
	if e.words != "" {
		text += "; its last words: " + e.words
	}
	return text
}

// Kind is the same for ends of one reason: it leaves out numbers, such as ids and addresses.
func (e *Ending) Kind() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, e.String())
}

// life lasts from a start to the end, after which the pulse beats.
type life struct {
	pulse *pulse

	mu   sync.Mutex
	done chan struct{}
	end  *Ending
}

func (l *life) runsLocked() bool { return l.done != nil && l.end == nil }

// beginLocked begins a life that ends when last returns; last says how.
func (l *life) beginLocked(last func() *Ending) {
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

// Fate says how the plugin ended; nil while it runs.
func (l *life) Fate() *Ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// attached is a plugin that the checks did not start.
type attached struct{}

func (attached) Start(Dirs) error        { return nil }
func (attached) Stop(time.Duration) bool { return true }
func (attached) Kill()                   {}
func (attached) Fate() *Ending           { return nil }

// killing bounds the time in which a plugin in this process must end.
const killing = 5 * time.Second

// function is a plugin in this process.
type function struct {
	run func(context.Context, Dirs) error
	life
	cancel context.CancelFunc // guarded by life's lock
}

func (f *function) Start(dirs Dirs) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runsLocked() {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.beginLocked(func() *Ending {
		err := f.run(ctx, dirs)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return &Ending{err: err}
	})
	return nil
}

func (f *function) Stop(most time.Duration) bool {
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

func (f *function) Kill() { f.Stop(killing) }
