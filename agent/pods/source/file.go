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

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
)

// FileConfig says which manifests to follow.
type FileConfig struct {
	// Path is a file, or a directory with files: those in subdirectories and those whose names start
	// with a dot are skipped. While it does not exist there are no pods.
	Path string
	// Node is the node's name.
	Node string
	// Every is the time between two complete reads, in case an event was missed.
	Every time.Duration
	// Strict refuses manifests with unknown fields, which are otherwise ignored.
	Strict bool
	Gates  manifest.Gates
	// Report receives problems; nil ignores them. It must not block.
	Report func(complaint.Problem)
}

// File is the feed of static pods from manifests, one pod per file, JSON or YAML.
//
// It reads a file when its writer closes it or moves it into place, so it sees no half-written
// manifests. A file that becomes unreadable or invalid keeps its last good pod; a removed one loses
// it. A file that hangs does not delay others: see reading.
type File struct {
	c       FileConfig
	reader  *reader
	lookAt  func(path string, watching bool) look
	entries map[string]*fileEntry // by file name
	isDir   bool                  // the path is a directory
	wrong   pathProblems
	ledger  ledger

	done     chan outcome
	stuck    int // reads that the feed no longer waits for
	delivery delivery
	// lookingSince is the time at which the pending look at the path began, in nanoseconds; 0: none.
	lookingSince atomic.Int64
}

// pathProblems holds problems with the path itself; empty: none.
type pathProblems struct{ listing, missing, watching string }

// delivery describes what was delivered since Run began.
type delivery struct {
	began     time.Time
	deliver   func([]*v1.Pod)
	delivered bool
	partial   bool // the last set was partial
}

const (
	// movedSettle is how long a file must be moved away before its pod is removed: editors move a file
	// away and write a new one in its place. A file that is deleted loses its pod at once, even if it
	// is written again.
	movedSettle = 20 * time.Millisecond
	// absentRetry is the time between two attempts to watch a missing directory.
	absentRetry = time.Second
	// unheard is how long after the start files that hang may have unknown pods. During this time no
	// pod is removed for lack of a manifest.
	unheard = time.Minute
)

// NewFile returns the feed.
func NewFile(c FileConfig) *File {
	if c.Report == nil {
		c.Report = func(complaint.Problem) {}
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
	f.delivery = delivery{began: time.Now(), deliver: deliver}
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

// tell delivers the set if it changed or the previous one was partial, and reports problems.
func (f *File) tell(changed bool) {
	if ended := f.delivery.partial && !f.isPartial(); f.wrong.listing == "" &&
		(changed || ended || !f.delivery.delivered) {
		pods := f.pods()
		f.delivery.delivered, f.delivery.partial = true, f.isPartial()
		f.delivery.deliver(pods)
	}
	f.ledger.now(f.findings())
}

// Partial reports whether the set being delivered may lack pods of files that hang. Only deliver
// may call it.
func (f *File) Partial() bool { return f.delivery.partial }

func (f *File) isPartial() bool {
	if time.Since(f.delivery.began) >= unheard {
		return false
	}
	for _, e := range f.entries {
		if e.reading != nil && e.sum == (fileEntry{}).sum {
			return true
		}
	}
	return false
}

// pause waits, and takes the results of files that hung.
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

// follow handles events and ticks until ctx ends or the watch must be set up again.
func (f *File) follow(outer context.Context, l look, tick <-chan time.Time) {
	ctx, cancel := context.WithCancel(outer)
	bursts, lost := make(chan []dirEvent), make(chan error, 1)
	go func() { lost <- l.watch.run(ctx, bursts) }()
	defer func() {
		cancel()
		<-lost //nolint:errcheck // the error of a watch that has ended
	}()
	heard := time.NewTimer(time.Until(f.delivery.began.Add(unheard)))
	defer heard.Stop()
	vanished := gone{}
	due := time.NewTimer(0)
	defer due.Stop()
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
		case <-heard.C: // files that still hang are no longer waited for
		case <-tick:
			changed = f.relist(outer)
		case <-due.C:
			changed = f.read(outer, readings(vanished.takeDue(time.Now()), false))
			vanished.set(due)
		case events := <-bursts:
			changed = f.handle(outer, events, vanished)
			vanished.set(due)
		}
		f.tell(changed)
		if f.isDir != l.isDir {
			return // the path became a directory, or ceased to be one
		}
	}
}

// gone maps files that were moved away to the time at which their pods are removed.
type gone map[string]time.Time

// takeDue removes and returns the files that are due.
func (g gone) takeDue(now time.Time) map[string]bool {
	out := map[string]bool{}
	for name, due := range g {
		if !due.After(now) {
			out[name] = true
			delete(g, name)
		}
	}
	return out
}

// set sets the timer to the first file that is due.
func (g gone) set(t *time.Timer) {
	if len(g) == 0 {
		t.Stop()
		return
	}
	first := slices.MinFunc(slices.Collect(maps.Values(g)), time.Time.Compare)
	t.Reset(time.Until(first))
}

// handle reads the files of a burst that are complete, and adds those that were moved away to
// vanished. It first removes the pods of deleted files.
func (f *File) handle(ctx context.Context, events []dirEvent, vanished gone) (changed bool) {
	written, created := map[string]bool{}, map[string]bool{}
	all := false
	for _, e := range events {
		switch {
		case e.name == "" || strings.HasPrefix(e.name, ".."):
			// The directory's mode changed, events were lost, or the hidden directory behind a set of links
			// was replaced.
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
			all = all || !f.isDir // the path may have become a directory
		}
	}
	if all {
		changed = f.relist(ctx)
	}
	changed = f.read(ctx, readings(created, true)) || changed
	return f.read(ctx, readings(written, false)) || changed
}

// remove delivers the set without the pod of a deleted file: if the file exists again, its pod must
// start anew.
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

// relist reads everything again.
func (f *File) relist(ctx context.Context) (changed bool) {
	l, ok := f.look(ctx, false)
	return ok && f.refreshAll(ctx, l)
}

// refreshAll reads all listed files and those known before. If the path could not be listed, it
// changes nothing. It does not read files that hang until their entry changes.
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

// findings returns the present problems, the worst first for each name.
func (f *File) findings() []finding {
	var out []finding
	for _, wrong := range []struct{ reason, message string }{
		{manifest.Unreadable, f.wrong.listing}, {manifest.Absent, f.wrong.missing}, {manifest.Unreadable, f.wrong.watching},
	} {
		if wrong.message != "" {
			out = append(out, finding{Problem: complaint.Problem{Source: FileSource, Name: f.c.Path,
				Reason: wrong.reason, Message: wrong.message}})
		}
	}
	for _, e := range f.entries {
		for _, p := range []complaint.Problem{
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
