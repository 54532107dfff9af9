package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
// loses it.
type File struct {
	c       FileConfig
	entries map[string]*fileEntry // by file name
	// What is wrong with the path itself; "": nothing.
	listing, watching string
	ledger            ledger
}

// fileEntry is what is known of one file.
type fileEntry struct {
	sum [sha256.Size]byte // of the content last looked at
	pod *v1.Pod           // of the last good content, nil if there was none
	// What is wrong: with the file, with its content, with its pod beside the others; and what of
	// the content is ignored. Without a message: nothing.
	unreadable, invalid, clash, ignored Problem
}

// settle is how long a file must be gone before its pod goes: editors move a file away and write a
// new one in its place.
const settle = 20 * time.Millisecond

// absentRetry is the time between two attempts to watch a directory that does not exist.
const absentRetry = time.Second

// NewFile returns the feed.
func NewFile(c FileConfig) *File {
	if c.Report == nil {
		c.Report = func(Problem) {}
	}
	c.Path = filepath.Clean(c.Path)
	return &File{c: c, entries: map[string]*fileEntry{}, ledger: ledger{report: c.Report}}
}

// Name implements Feed.
func (*File) Name() string { return FileSource }

// Run implements Feed.
func (f *File) Run(ctx context.Context, deliver func([]*v1.Pod)) error {
	tick := time.NewTicker(f.c.Every)
	defer tick.Stop()
	delivered := false
	for ctx.Err() == nil {
		dir := f.watched()
		w, watchErr := newWatch(dir)
		changed, ok := f.relist()
		if ok && (changed || !delivered) {
			deliver(f.pods())
			delivered = true
		}
		f.watching = ""
		absent := errors.Is(watchErr, fs.ErrNotExist)
		if watchErr != nil && !absent {
			f.watching = watchErr.Error() + "; looking every " + f.c.Every.String()
		}
		f.ledger.now(f.findings())
		switch {
		case watchErr == nil:
			f.follow(ctx, w, dir == f.c.Path, tick.C, deliver)
		case absent:
			sleep(ctx, absentRetry)
		default:
			sleep(ctx, f.c.Every)
		}
	}
	return nil
}

// watched is the directory whose entries matter: the path, or where it is or will be.
func (f *File) watched() string {
	if info, err := os.Stat(f.c.Path); err == nil && info.IsDir() {
		return f.c.Path
	}
	return filepath.Dir(f.c.Path)
}

// follow acts on events and ticks until ctx ends or the watch has to be set up anew. isDir: the
// watch is on the path itself, not on the directory around it.
func (f *File) follow(outer context.Context, w *watch, isDir bool, tick <-chan time.Time,
	deliver func([]*v1.Pod)) {
	ctx, cancel := context.WithCancel(outer)
	bursts, lost := make(chan []dirEvent), make(chan error, 1)
	go func() { lost <- w.run(ctx, bursts) }()
	defer func() {
		cancel()
		<-lost //nolint:errcheck // of a watch that nobody needs any more
	}()
	vanished := map[string]bool{}
	var settled <-chan time.Time
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case err := <-lost:
			lost <- err // for the deferred join
			if !errors.Is(err, errWatchLost) {
				sleep(outer, absentRetry)
			}
			return
		case <-tick:
			changed, _ = f.relist()
		case <-settled:
			for name := range vanished {
				changed = f.refresh(name) || changed
			}
			clear(vanished)
		case events := <-bursts:
			changed = f.handle(events, isDir, vanished)
			if len(vanished) > 0 {
				settled = time.After(settle)
			}
		}
		if changed {
			deliver(f.pods())
		}
		f.ledger.now(f.findings())
		if (f.watched() == f.c.Path) != isDir {
			return // the path became a directory, or ceased to be one
		}
	}
}

// handle looks at the files of a burst that are complete and adds those that went to vanished.
func (f *File) handle(events []dirEvent, isDir bool, vanished map[string]bool) (changed bool) {
	written := map[string]bool{}
	all := false
	for _, e := range events {
		switch {
		case e.name == "" || strings.HasPrefix(e.name, ".."):
			// The directory's mode changed, events were dropped, or the hidden directory behind a
			// set of links was exchanged.
			all = true
		case !isDir && e.name != filepath.Base(f.c.Path) || strings.HasPrefix(e.name, "."):
		case e.mask&goneEvents != 0:
			vanished[e.name] = true
		case e.mask&writtenEvents != 0 || e.mask&createdEvents != 0 && f.complete(e.name):
			written[e.name] = true
		}
	}
	if all {
		changed, _ = f.relist()
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		changed = f.refresh(name) || changed
	}
	return changed
}

// complete reports whether a new entry has its content already: links do, files are being written.
func (f *File) complete(name string) bool {
	var stat unix.Stat_t
	err := unix.Lstat(f.path(name), &stat)
	return err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink > 1)
}

func (f *File) path(name string) string {
	if name == filepath.Base(f.c.Path) && f.watched() != f.c.Path {
		return f.c.Path
	}
	return filepath.Join(f.c.Path, name)
}

// relist looks at everything. ok is false when the path cannot be read: nothing is concluded then.
func (f *File) relist() (changed, ok bool) {
	names, err := f.list()
	f.listing = ""
	if err != nil {
		f.listing = err.Error()
		return false, false
	}
	present := map[string]bool{}
	for _, name := range names {
		present[name] = true
		changed = f.refresh(name) || changed
	}
	for name := range f.entries {
		if !present[name] {
			changed = f.refresh(name) || changed
		}
	}
	return changed, true
}

func (f *File) list() ([]string, error) {
	info, err := os.Stat(f.c.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at manifests: %w", err)
	case !info.IsDir():
		return []string{filepath.Base(f.c.Path)}, nil
	}
	dir, err := os.ReadDir(f.c.Path)
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var names []string
	for _, entry := range dir {
		if !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// refresh reads one file and reports whether the set of pods changed by it.
func (f *File) refresh(name string) (changed bool) {
	path := f.path(name)
	data, err := readManifest(path)
	o := origin{node: f.c.Node, source: FileSource, place: path}
	e := f.entries[name]
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDirectory) {
		delete(f.entries, name)
		if errors.Is(err, errDirectory) && path != f.c.Path {
			f.entries[name] = &fileEntry{unreadable: o.problem(path, err)}
		}
		return e != nil && e.pod != nil
	}
	if e == nil {
		e = &fileEntry{}
		f.entries[name] = e
	}
	e.unreadable = Problem{}
	if err != nil {
		e.unreadable = o.problem(path, err)
		return false
	}
	sum := sha256.Sum256(data)
	if sum == e.sum {
		return false
	}
	e.sum, e.invalid = sum, Problem{}
	d, err := decode(data, false, f.c.Strict)
	if err == nil {
		err = o.pod(&d.pods[0])
	}
	if err != nil {
		e.invalid = o.problem(path, err)
		return false
	}
	e.ignored = o.warning(path, d.ignored)
	e.pod = &d.pods[0]
	return true
}

// pods is the set to deliver, in the order of the file names. Of two files with the same pod, or with
// pods of the same UID, the first counts.
func (f *File) pods() []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(f.entries))
	owner, uids := map[types.NamespacedName]string{}, map[types.UID]string{}
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		e := f.entries[name]
		if e.pod == nil {
			continue
		}
		key := types.NamespacedName{Namespace: e.pod.Namespace, Name: e.pod.Name}
		e.clash = Problem{}
		if first, twice := owner[key]; twice {
			e.clash = origin{source: FileSource}.problem(f.path(name), refuse(FailedValidation,
				"pod %s is in %s already; rename one of the two", key, f.path(first)))
			continue
		}
		if first, twice := uids[e.pod.UID]; twice {
			e.clash = origin{source: FileSource}.problem(f.path(name), refuse(FailedValidation,
				"the pod in %s has the same UID %s; change metadata.uid in one of the two",
				f.path(first), e.pod.UID))
			continue
		}
		owner[key], uids[e.pod.UID] = name, name
		pods = append(pods, e.pod)
	}
	return pods
}

// findings is what is wrong now, the worst first for each name, in the order of the names.
func (f *File) findings() []finding {
	var out []finding
	for _, message := range []string{f.listing, f.watching} {
		if message != "" {
			out = append(out, finding{Problem: Problem{Source: FileSource, Name: f.c.Path,
				Reason: Unreadable, Message: message}})
		}
	}
	for _, e := range f.entries {
		for _, p := range []Problem{e.unreadable, e.invalid, e.clash, e.ignored} {
			if p.Message != "" {
				out = append(out, finding{p, e.sum})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b finding) int { return strings.Compare(a.Name, b.Name) })
	return out
}

var errDirectory = errors.New("is a directory; only the files beside it are looked at")

// readManifest reads a regular file of at most maxManifest bytes.
func readManifest(path string) ([]byte, error) {
	// Not blocking: a named pipe without a writer would hold us forever.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("look at manifest: %w", err)
	case info.IsDir():
		return nil, errDirectory
	case !info.Mode().IsRegular():
		return nil, refuse(Unreadable, "is no regular file; remove it or put the manifest there")
	}
	data, err := readLimited(file)
	if err != nil {
		return nil, err
	}
	return data, nil
}

// readLimited reads all, and refuses more than maxManifest.
func readLimited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read manifest: %w", err)
	case len(data) > maxManifest:
		return nil, refuse(Unreadable, "the manifest is larger than %d MiB", maxManifest>>20)
	}
	return data, nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
