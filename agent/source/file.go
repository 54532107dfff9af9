package source

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// FileConfig says which manifests to follow.
type FileConfig struct {
	// Path is a directory (its files, not those below; names beginning with a dot are left out) or
	// one file. While it does not exist there are no pods.
	Path string
	// Node is the node's name.
	Node string
	// Every is the time between two complete looks, in case an event was missed.
	Every time.Duration
	// Strict refuses manifests with fields that are read over otherwise.
	Strict bool
	// Report receives problems; nil ignores them. It must not block.
	Report func(Problem)
}

// File is the feed of static pods from manifests, one pod per file, JSON or YAML.
//
// It acts on a file when its writer closes it or moves it in place, so half-written manifests are
// not seen. A file that becomes unreadable or invalid keeps its last good pod; a removed one
// loses it. One that hangs keeps nobody waiting: see reading.
type File struct {
	c       FileConfig
	reader  *reader
	lookAt  func(path string, watching bool) look
	entries map[string]*fileEntry // by file name
	isDir   bool                  // the path is a directory
	wrong   pathProblems
	ledger  ledger

	done  chan outcome
	stuck int // readings that nobody waits for
	told  delivery
	// lookingSince is since when the path has been looked at, in nanoseconds; 0: it is not.
	lookingSince atomic.Int64
}

// pathProblems are what is wrong with the path itself; empty: nothing.
type pathProblems struct{ listing, missing, watching string }

// delivery is what was delivered since Run began.
type delivery struct {
	began     time.Time
	deliver   func([]*v1.Pod)
	delivered bool
	partial   bool // the last one was
}

const (
	// movedSettle is how long a file must be moved away before its pod goes: editors move a file away
	// and write a new one in its place. One that is removed is gone, and its pod with it, whatever
	// is written in its place.
	movedSettle = 20 * time.Millisecond
	// absentRetry is the time between two attempts to watch a directory that does not exist.
	absentRetry = time.Second
	// unheard is how long after the start files that hang may have pods of which nothing is known:
	// for so long no pod is removed because no manifest is known for it.
	unheard = time.Minute
)

// NewFile returns the feed.
func NewFile(c FileConfig) *File {
	if c.Report == nil {
		c.Report = func(Problem) {}
	}
	c.Path = filepath.Clean(c.Path)
	return &File{
		c: c, reader: newReader(c), lookAt: lookAt, entries: map[string]*fileEntry{},
		ledger: ledger{report: c.Report}, done: make(chan outcome),
	}
}

// Name implements Feed.
func (*File) Name() string { return FileSource }

// Run implements Feed.
func (f *File) Run(ctx context.Context, deliver func([]*v1.Pod)) error {
	tick := time.Tick(f.c.Every)
	f.told = delivery{began: time.Now(), deliver: deliver}
	for ctx.Err() == nil {
		l, ok := f.look(ctx, true)
		if !ok {
			break
		}
		f.wrong.watching = ""
		absent := errors.Is(l.watchErr, fs.ErrNotExist)
		if l.watchErr != nil && !absent {
			f.wrong.watching = l.watchErr.Error() + "; looking every " + f.c.Every.String()
		}
		f.tell(f.refreshAll(ctx, l))
		switch {
		case l.watchErr == nil:
			f.follow(ctx, l, tick)
		case absent:
			f.pause(ctx, absentRetry)
		default:
			f.pause(ctx, f.c.Every)
		}
	}
	return nil
}

// tell delivers the set if it changed, or if the one before was partial, and says what is wrong.
func (f *File) tell(changed bool) {
	if ended := f.told.partial && !f.isPartial(); f.wrong.listing == "" &&
		(changed || ended || !f.told.delivered) {
		pods := f.pods()
		f.told.delivered, f.told.partial = true, f.isPartial()
		f.told.deliver(pods)
	}
	f.ledger.now(f.findings())
}

// Partial reports whether the set that is being delivered may lack pods of files that hang. It is
// called by whom the set is delivered to.
func (f *File) Partial() bool { return f.told.partial }

func (f *File) isPartial() bool {
	if time.Since(f.told.began) >= unheard {
		return false
	}
	for _, e := range f.entries {
		if e.reading != nil && e.sum == (fileEntry{}).sum {
			return true
		}
	}
	return false
}

// pause waits, and takes what files that hung come to.
func (f *File) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-ctx.Done():
			return
		case o := <-f.done:
			f.tell(f.take(o))
		}
	}
}

// follow acts on events and ticks until ctx ends or the watch has to be set up anew.
func (f *File) follow(outer context.Context, l look, tick <-chan time.Time) {
	ctx, cancel := context.WithCancel(outer)
	bursts, lost := make(chan []dirEvent), make(chan error, 1)
	go func() { lost <- l.watch.run(ctx, bursts) }()
	defer func() {
		cancel()
		<-lost //nolint:errcheck // of a watch that nobody needs any more
	}()
	heard := time.NewTimer(time.Until(f.told.began.Add(unheard)))
	defer heard.Stop()
	vanished := gone{}
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case err := <-lost:
			lost <- err // for the deferred join
			if !errors.Is(err, errWatchLost) {
				f.pause(outer, absentRetry)
			}
			return
		case o := <-f.done:
			changed = f.take(o)
		case <-heard.C: // what hangs still is not waited for
		case <-tick:
			changed = f.relist(outer)
		case <-settled.C:
			changed = f.read(outer, readings(vanished.settled(time.Now()), false))
			vanished.set(settled)
		case events := <-bursts:
			changed = f.handle(outer, events, vanished)
			vanished.set(settled)
		}
		f.tell(changed)
		if f.isDir != l.isDir {
			return // the path became a directory, or ceased to be one
		}
	}
}

// gone are files that were moved away, with when it is believed that their pods are to go.
type gone map[string]time.Time

// settled takes out those that have been gone for long enough.
func (g gone) settled(now time.Time) map[string]bool {
	out := map[string]bool{}
	for name, due := range g {
		if !due.After(now) {
			out[name] = true
			delete(g, name)
		}
	}
	return out
}

// set has the timer fire for the first that is due.
func (g gone) set(t *time.Timer) {
	if len(g) == 0 {
		t.Stop()
		return
	}
	first := slices.MinFunc(slices.Collect(maps.Values(g)), time.Time.Compare)
	t.Reset(time.Until(first))
}

// handle looks at the files of a burst that are complete and adds those that were moved away to
// vanished. Pods of those that were removed go first.
func (f *File) handle(ctx context.Context, events []dirEvent, vanished gone) (changed bool) {
	written, created := map[string]bool{}, map[string]bool{}
	all := false
	for _, e := range events {
		switch {
		case e.name == "" || strings.HasPrefix(e.name, ".."):
			// The directory's mode changed, events were dropped, or the hidden directory behind a
			// set of links was exchanged.
			all = true
		case !f.isDir && e.name != filepath.Base(f.c.Path) || strings.HasPrefix(e.name, "."):
		case e.mask&unix.IN_DELETE != 0:
			f.remove(e.name)
		case e.mask&unix.IN_MOVED_FROM != 0:
			vanished[e.name] = time.Now().Add(movedSettle)
		case e.mask&writtenEvents != 0:
			written[e.name] = true
		case e.mask&createdEvents != 0:
			created[e.name] = true
			all = all || !f.isDir // the path may be a directory now
		}
	}
	if all {
		changed = f.relist(ctx)
	}
	changed = f.read(ctx, readings(created, true)) || changed
	return f.read(ctx, readings(written, false)) || changed
}

// remove takes that a file was removed, and delivers the set without its pod: if it is there again, the
// same pod starts anew.
func (f *File) remove(name string) {
	e := f.entries[name]
	if delete(f.entries, name); e != nil && e.pod != nil {
		f.tell(true)
	}
}

func readings(names map[string]bool, created bool) (out []reading) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, reading{name: name, created: created})
	}
	return out
}

func (f *File) path(name string) string {
	if !f.isDir {
		return f.c.Path
	}
	return filepath.Join(f.c.Path, name)
}

// relist looks at everything.
func (f *File) relist(ctx context.Context) (changed bool) {
	l, ok := f.look(ctx, false)
	return ok && f.refreshAll(ctx, l)
}

// refreshAll reads what is listed, and what was. Of a path that cannot be listed nothing is
// concluded. Files that hang are not read again until their entry changes.
func (f *File) refreshAll(ctx context.Context, l look) (changed bool) {
	if l.err != nil {
		return false
	}
	names := map[string]bool{}
	for _, name := range l.names {
		names[name] = true
	}
	for name, e := range f.entries {
		switch hangs := e.reading != nil; {
		case hangs && names[name]:
			delete(names, name)
		case hangs:
			changed = changed || e.pod != nil
			delete(f.entries, name)
		default:
			names[name] = true
		}
	}
	return f.read(ctx, readings(names, false)) || changed
}

// findings is what is wrong now, the worst first for each name, in the order of the names.
func (f *File) findings() []finding {
	var out []finding
	for _, wrong := range []struct{ reason, message string }{
		{Unreadable, f.wrong.listing}, {Absent, f.wrong.missing}, {Unreadable, f.wrong.watching},
	} {
		if wrong.message != "" {
			out = append(out, finding{Problem: Problem{Source: FileSource, Name: f.c.Path,
				Reason: wrong.reason, Message: wrong.message}})
		}
	}
	for _, e := range f.entries {
		for _, p := range []Problem{
			f.hangs(e), e.unreadable, e.invalid, e.clash, e.ignored,
		} {
			if p.Message != "" {
				out = append(out, finding{p, e.sum})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b finding) int { return strings.Compare(a.Name, b.Name) })
	return out
}
